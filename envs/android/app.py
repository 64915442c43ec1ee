"""The number game as an app that a phone runs."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.android import drawing, layout
from agentrl.envs.android.rules import NumberGame, Phase
from agentrl.types import Image

PACKAGE = "org.agentrl.numbergame"
ACTIVITY = ".Main"
_SWITCH = {"true": True, "1": True, "false": False, "0": False}


class NumberGameApp:
    """Cards and one button to touch; extras `seed`, `rounds` and `memory` when it is launched."""

    package = PACKAGE
    activity = ACTIVITY

    def __init__(self) -> None:
        self._game = NumberGame()

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start a new game.

        Args:
            extras: `seed` (default 0), `rounds` (10) and `memory` (`true` or `false`, the
                default); others are none of this app's.

        Raises:
            ValueError: one that is no number, no switch or out of range.
        """
        memory = extras.get("memory", "false").lower()
        if memory not in _SWITCH:
            raise ValueError(f"memory is {memory!r}; it must be true or false.")
        self._game = NumberGame(
            seed=int(extras.get("seed", "0")),
            rounds=int(extras.get("rounds", "10")),
            memory=_SWITCH[memory],
        )

    def touch(self, x: float, y: float) -> bool:
        """Pick a card or press the button; elsewhere, and on what is locked, nothing happens."""
        if layout.BUTTON.holds(x, y):
            return self._press()
        for card, box in enumerate(layout.CARDS):
            if box.holds(x, y):
                return self._game.pick(card)
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """The game has no use for a swipe."""
        return False

    def key(self, code: str) -> bool:
        """The game has no use for keys."""
        return False

    def render(self, width: int, height: int) -> Image:
        """The app's area, uint8[height, width, 3]."""
        return drawing.render(self._game, width, height)

    def state(self) -> Mapping[str, Any]:
        """The truth as plain JSON values."""
        return self._game.state()

    def _press(self) -> bool:
        game = self._game
        if game.phase is Phase.FINAL:
            self._game = NumberGame(game.seed + 1, len(game.rounds), game.memory)
            return True
        return game.advance()
