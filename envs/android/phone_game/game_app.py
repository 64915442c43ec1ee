"""A game as a phone app that takes touches, draws the screen and publishes its state."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from agentrl.envs.android.phone_game.boxes import Box, SwipePath, swipe_along, tap_at
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.level_settings import (
    LevelSettings,
    PacedSettings,
)
from agentrl.envs.android.phone_game.rules import GameRules, TouchTarget
from agentrl.envs.picture_colors import in_colors
from agentrl.types import Image


class GameApp:
    """The app of one game, launched with the extras `seed` and the settings of its level.

    Each game subclasses it and sets `game`.
    """

    game: ClassVar[PhoneGame]

    def __init__(self) -> None:
        self.package = self.game.package
        self.launch({})

    @property
    def activity(self) -> str:
        """The activity of the game."""
        return self.game.activity

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start a new game.

        Args:
            extras: `seed` (default 0) and settings of the level, switches as `true` or `false`;
                unknown extras are ignored.

        Raises:
            ValueError: an extra has the wrong type or its value is out of range.
        """
        self.level: LevelSettings = self.game.level(**self.game.level.read(extras))
        self.rules = self.begin(extras)
        self._waited_ms = 0
        self._is_touched = False

    def begin(self, extras: Mapping[str, str]) -> GameRules:
        """Return the rules of a new game at `self.level`."""
        seed = int(extras.get("seed", "0"))
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more.")
        settings = asdict(self.level)
        del settings["colors"]  # a look, which `render` applies to any game
        return self.game.rules(seed, **settings)

    def touch(self, x: float, y: float) -> bool:
        """Tap, then let the time of one action pass."""
        return self._then_time_passes(self.rules.touch(x, y))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swipe at any speed, then let the time of one action pass."""
        return self._then_time_passes(self.rules.swipe(x1, y1, x2, y2))

    def key(self, code: str) -> bool:
        """Ignore the key."""
        return False

    @property
    def tick_ms(self) -> int:
        """Milliseconds between calls of `tick`; 0 while the clock is stopped.

        A game on a running clock starts with the first touch, so that its first screen does not
        change before the environment has found it.
        """
        waits = isinstance(self.level, PacedSettings) and not (self.level.runs and self._is_touched)
        return 0 if waits else self.rules.tick_ms

    def tick(self, ms: int) -> bool:
        """Advance the clock by `ms` and run every tick that has become due."""
        self._waited_ms += ms
        changed = False
        while 0 < self.tick_ms <= self._waited_ms:
            self._waited_ms -= self.tick_ms
            changed |= self.rules.tick()
        if not self.tick_ms:
            self._waited_ms = 0
        return changed

    def render(self, width: int, height: int) -> Image:
        """Draw the app's area, uint8[height, width, 3]."""
        return in_colors(self.game.draw(self.rules, width, height), self.level.colors)

    def state(self) -> Mapping[str, Any]:
        """Return the true state as plain JSON values, with `touch_targets` as screen positions."""
        targets = {name: _touches(target) for name, target in self.rules.touch_targets().items()}
        named = {"seed": self.rules.seed, **asdict(self.level)}
        return {**named, **self.rules.state(), "touch_targets": targets}

    def _then_time_passes(self, changed: bool) -> bool:
        self._is_touched = True
        if isinstance(self.level, PacedSettings) and not self.level.runs and self.rules.tick_ms:
            for _ in range(self.level.ticks):
                changed |= self.rules.tick()
        return changed


def _touches(target: TouchTarget) -> list[Any]:
    """Convert to screen positions: two numbers for a tap, four for a swipe, a list for several."""
    if isinstance(target, Box):
        return list(tap_at(target))
    if isinstance(target, SwipePath):
        return list(swipe_along(target))
    return [list(tap_at(box)) for box in target]
