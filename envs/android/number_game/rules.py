"""The touch interface of the number game."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.envs.android.number_game.game_state import NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.layout import round_layout
from agentrl.envs.android.phone_game.rules import GameRules, TouchTarget


class NumberGameRules(GameRules):
    """The touch interface: plays number games in sequence, raising the seed by 1 each time."""

    def __init__(self, seed: int, rounds: int = 10, **level: Any) -> None:
        self.game = NumberGameState(seed, rounds, **level)

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The seed of the current game."""
        return self.game.seed

    def touch(self, x: float, y: float) -> bool:
        """Pick a card or press the button; any other touch only lets time pass."""
        return self._act(x, y) or self.game.miss()

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Let time pass, as for a touch that hits nothing."""
        return self.game.miss()

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the cards in reading order, and the button."""
        where = round_layout(self.game)
        return {"cards": where.cards, "button": where.button}

    def state(self) -> dict[str, Any]:
        """Return the true state of the current game."""
        return self.game.state()

    def _act(self, x: float, y: float) -> bool:
        where = round_layout(self.game)
        if where.button.contains(x, y):
            return self._press()
        for card, box in enumerate(where.cards):
            if box.contains(x, y):
                return self.game.pick(card)
        return False

    def _press(self) -> bool:
        game = self.game
        if game.phase is NumberGamePhase.FINAL:
            self.game = NumberGameState(game.seed + 1, len(game.rounds), **asdict(game.level))
            return True
        return game.advance()
