"""The number game as an app that a phone runs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.envs.android import drawing
from agentrl.envs.android.levels import read_extras
from agentrl.envs.android.places import places
from agentrl.envs.android.rules import NumberGame, Phase
from agentrl.types import Image

PACKAGE = "org.agentrl.numbergame"
ACTIVITY = ".Main"


class NumberGameApp:
    """Cards and one button to touch; extras `seed`, `rounds` and those of a level at its launch."""

    package = PACKAGE
    activity = ACTIVITY

    def __init__(self) -> None:
        self._game = NumberGame()

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start a new game.

        Args:
            extras: `seed` (default 0), `rounds` (10) and the settings of `Level`, whose switches
                are `true` or `false`; others are none of this app's.

        Raises:
            ValueError: one that is no number, no switch or out of range.
        """
        seed, rounds = int(extras.get("seed", "0")), int(extras.get("rounds", "10"))
        self._game = NumberGame(seed, rounds, **read_extras(extras))

    def touch(self, x: float, y: float) -> bool:
        """Pick a card or press the button; elsewhere, and on what is locked, only time passes."""
        return self._act(x, y) or self._game.miss()

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """The game has no use for a swipe: to its clock it is a touch that hits nothing."""
        return self._game.miss()

    def key(self, code: str) -> bool:
        """The game has no use for keys."""
        return False

    def render(self, width: int, height: int) -> Image:
        """The app's area, uint8[height, width, 3]."""
        return drawing.render(self._game, width, height)

    def state(self) -> Mapping[str, Any]:
        """The truth as plain JSON values, with the `places` to tap below a status bar."""
        return {**self._game.state(), "places": places(self._game).taps()}

    def _act(self, x: float, y: float) -> bool:
        where = places(self._game)
        if where.button.holds(x, y):
            return self._press()
        for card, box in enumerate(where.cards):
            if box.holds(x, y):
                return self._game.pick(card)
        return False

    def _press(self) -> bool:
        game = self._game
        if game.phase is Phase.FINAL:
            self._game = NumberGame(game.seed + 1, len(game.rounds), **asdict(game.level))
            return True
        return game.advance()
