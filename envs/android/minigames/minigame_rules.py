"""Rules, swipes and random numbers shared by all minigames."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from agentrl.envs.android.phone_game.boxes import SwipePath
from agentrl.envs.android.phone_game.rules import GameRules

SWIPES: Mapping[str, SwipePath] = {
    "up": SwipePath(0.5, 0.65, 0.5, 0.45),
    "down": SwipePath(0.5, 0.45, 0.5, 0.65),
    "left": SwipePath(0.7, 0.55, 0.3, 0.55),
    "right": SwipePath(0.3, 0.55, 0.7, 0.55),
}
"""One swipe for each direction, anywhere on the screen."""
_TALL = 16 / 9


class MinigameRules(GameRules):
    """One game that is won or lost.

    Args:
        seed: >= 0.
        **level: the settings of the game's level.

    Raises:
        ValueError: negative seed, or an invalid level.
    """

    pace_ms: ClassVar[int] = 0
    """Milliseconds per tick while the game runs; 0 if nothing moves on its own."""

    @property
    @abstractmethod
    def won(self) -> bool:
        """Whether the game is won."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether the game is lost."""

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.won or self.lost

    @property
    def tick_ms(self) -> int:
        """`pace_ms` until the game is over."""
        return 0 if self.done else self.pace_ms

    @abstractmethod
    def moves(self) -> tuple[Any, ...]:
        """Return the legal moves; none when the game is over."""

    def state(self) -> dict[str, Any]:
        """Return the state that all games share; each game adds its own, including `worth`."""
        return {
            "moves": list(self.moves()),
            "success": self.won,
            "lost": self.lost,
            "done": self.done,
        }


def direction(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return the main direction of a swipe in [0, 1] of a portrait screen, such as `up`."""
    across, down = x2 - x1, (y2 - y1) * _TALL
    if abs(across) >= abs(down):
        return "right" if across >= 0 else "left"
    return "down" if down > 0 else "up"


def event_rng(seed: int, *where: int) -> np.random.Generator:
    """Return the random generator for one event of a game, independent of earlier draws."""
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more.")
    return np.random.default_rng((seed, *where))
