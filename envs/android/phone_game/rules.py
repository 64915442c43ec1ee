"""The interface of a game's rules: a pure, seeded state machine with named positions to touch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.envs.android.phone_game.boxes import Box, SwipePath

TouchTarget = Box | SwipePath | Sequence[Box]
"""A box to tap, a path to swipe along, or several boxes to tap, one per index."""


class GameRules(ABC):
    """One game, from start to end.

    The state is a function of the seed, the settings, the touches and the ticks alone. A random
    draw depends only on the seed and on how many draws preceded it.

    Args:
        seed: >= 0; identifies the game.
        **settings: the fields of its level.
    """

    seed: int

    def touch(self, x: float, y: float) -> bool:
        """Tap at (x, y), in [0, 1] of the app's area. Returns whether anything changed."""
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Swipe from (x1, y1) to (x2, y2), in [0, 1]. Returns whether anything changed."""
        return False

    @property
    def tick_ms(self) -> int:
        """Milliseconds per tick; 0 while nothing moves on its own."""
        return 0

    def tick(self) -> bool:
        """Let `tick_ms` pass. Returns whether anything changed."""
        return False

    @abstractmethod
    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the target to touch for each call, by the call's name.

        Every call is always present. If its button is not on the screen, the target is where it
        would be; touching it does nothing.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values, without seed and settings.

        `done` is required. Together with the seed, the state must contain everything that the rest
        of the game depends on, because equal states are treated as the same state. `busy` means
        that an animation is running and will end on its own: the environment waits for it.
        `closed` means that the player has closed the game, and says how.
        """
