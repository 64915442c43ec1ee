"""The words of the number game: what the model is told, and what its reply means."""

from agentrl.envs.number_game.app import GAME
from agentrl.envs.number_game.levels import Level
from agentrl.envs.phone_game.game import NamedCalls
from agentrl.envs.phone_game.translator import GameTranslator

MODES = ("tap", "select")


class NumberGameTranslator(GameTranslator):
    """Shows the screen and nothing else; reads one tap, or one card in the mode `select`.

    Args:
        mode: `tap` or `select`, as the environment's.
        instruct: whether the rules are told before the first screen. A model that was taught the
            game by demonstrations does without.
        style: in which actions are said: `tag` or `tool` (`agentrl.actions.tool_calls`).
        memory: as the environment's, like all that follow; see `Level`.
        digits: nothing is said of it.
        cards: how many there are to choose from.
        moved: where they lie.
        distractor: nothing is said of it.
        timed: after how many touches a round is lost.

    Raises:
        ConfigError: an unknown mode or style, or a level that does not exist.
    """

    game = GAME
    modes = MODES
    level: Level

    def __init__(
        self,
        mode: str = "tap",
        instruct: bool = True,
        style: str = "tag",
        memory: bool = False,
        digits: int = 1,
        cards: int = 3,
        moved: bool = False,
        distractor: bool = False,
        timed: int = 0,
    ) -> None:
        super().__init__(
            mode,
            instruct,
            style,
            memory=memory,
            digits=digits,
            cards=cards,
            moved=moved,
            distractor=distractor,
            timed=timed,
        )
        self.calls = NamedCalls({"select(i)": self.level.cards}, style)

    def how(self) -> str:
        """How to answer in this mode, at this level."""
        if self.mode == "tap":
            return super().how()
        last = self.level.cards - 1
        cards = f"i from 0 (left card) to {last}."
        if self.level.moved:
            cards = f"i from 0 to {last}: the upper cards first, from left to right."
        if self.level.memory:
            cards += " While the cards lie face down, any of them turns all."
        return f"Answer {self.calls.grammar.told()}, {cards}"
