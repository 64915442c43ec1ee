"""The translator of the number game: the prompt, and how replies become actions."""

from typing import Any

from agentrl.envs.android.number_game.app import GAME
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.phone_game.game_action_calls import NamedCalls
from agentrl.envs.android.phone_game.translator import GameTranslator

MODES = ("tap", "select")


class NumberGameTranslator(GameTranslator):
    """Shows only the screen; parses one tap, or one card in the mode `select`.

    Args:
        mode: `tap` or `select`, the same as the environment's.
        instruct: whether the prompt states the rules before the first screen. A model that was
            trained on demonstrations does not need them.
        style: how actions are written: `tag` or `tool` (`agentrl.actions.action_calls`).
        **settings: the level, the same as the environment's; see `NumberGameLevel`.

    Raises:
        ConfigError: unknown mode or style, or an invalid level.
    """

    game = GAME
    modes = MODES
    level: NumberGameLevel

    def __init__(
        self, mode: str = "tap", instruct: bool = True, style: str = "tag", **settings: Any
    ) -> None:
        super().__init__(mode, instruct, style, **settings)
        self.calls = NamedCalls({"select(i)": self.level.cards}, style)

    def answer_format(self) -> str:
        """Return the format of replies in this mode at this level."""
        if self.mode == "tap":
            return super().answer_format()
        last = self.level.cards - 1
        cards = f"i from 0 (left card) to {last}."
        if self.level.moved:
            cards = f"i from 0 to {last}: the upper cards first, from left to right."
        if self.level.memory:
            cards += " While the cards lie face down, any of them turns all."
        return f"Answer {self.calls.grammar.describe()}, {cards}"
