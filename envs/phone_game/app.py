"""A game as an app that a phone runs: rules that are touched, drawn and published."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from agentrl.envs.phone_game.box import Box, Path, swipe_along, tap_at
from agentrl.envs.phone_game.game import PhoneGame
from agentrl.envs.phone_game.rules import Place, Rules
from agentrl.envs.phone_game.settings import Paced, Settings
from agentrl.types import Image


class GameApp:
    """The app of one game; extras at its launch: `seed` and the settings of its level.

    A class of its own for each game names the `game`.
    """

    game: ClassVar[PhoneGame]

    def __init__(self) -> None:
        self.package = self.game.package
        self.launch({})

    @property
    def activity(self) -> str:
        """Of the game."""
        return self.game.activity

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start a new game.

        Args:
            extras: `seed` (default 0) and settings of the level, whose switches are `true` or
                `false`; others are none of this app's.

        Raises:
            ValueError: one that is no number, no switch or out of range.
        """
        self.level: Settings = self.game.level(**self.game.level.read(extras))
        self.rules = self.begin(extras)
        self._waited_ms = 0
        self._is_touched = False

    def begin(self, extras: Mapping[str, str]) -> Rules:
        """The rules of a new game at `self.level`."""
        seed = int(extras.get("seed", "0"))
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more.")
        return self.game.rules(seed, **asdict(self.level))

    def touch(self, x: float, y: float) -> bool:
        """A tap, and the time that it takes."""
        return self._then_time_passes(self.rules.touch(x, y))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """A swipe, however quick, and the time that it takes."""
        return self._then_time_passes(self.rules.swipe(x1, y1, x2, y2))

    def key(self, code: str) -> bool:
        """A game has no use for keys."""
        return False

    @property
    def tick_ms(self) -> int:
        """How often the phone shall let time pass; 0: not now.

        A game on a running clock starts with the first touch: until then its screen can be found.
        """
        waits = isinstance(self.level, Paced) and not (self.level.runs and self._is_touched)
        return 0 if waits else self.rules.tick_ms

    def tick(self, ms: int) -> bool:
        """Let time pass; the ticks that fit into it."""
        self._waited_ms += ms
        changed = False
        while 0 < self.tick_ms <= self._waited_ms:
            self._waited_ms -= self.tick_ms
            changed |= self.rules.tick()
        if not self.tick_ms:
            self._waited_ms = 0
        return changed

    def render(self, width: int, height: int) -> Image:
        """The app's area, uint8[height, width, 3]."""
        return self.game.draw(self.rules, width, height)

    def state(self) -> Mapping[str, Any]:
        """The truth as plain JSON values, with the `places` to touch below a status bar."""
        places = {name: _touches(place) for name, place in self.rules.places().items()}
        named = {"seed": self.rules.seed, **asdict(self.level)}
        return {**named, **self.rules.state(), "places": places}

    def _then_time_passes(self, changed: bool) -> bool:
        self._is_touched = True
        if isinstance(self.level, Paced) and not self.level.runs and self.rules.tick_ms:
            for _ in range(self.level.ticks):
                changed |= self.rules.tick()
        return changed


def _touches(place: Place) -> list[Any]:
    """Positions on the whole screen: of a tap two numbers, of a swipe four, of several a list."""
    if isinstance(place, Box):
        return list(tap_at(place))
    if isinstance(place, Path):
        return list(swipe_along(place))
    return [list(tap_at(one)) for one in place]
