"""What the rules of a phone game are: a pure, seeded state machine with places to touch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.envs.phone_game.box import Box, Path

Place = Box | Path | Sequence[Box]
"""Where to tap, where to swipe along, or where to tap for the first, second, ... of its kind."""


class Rules(ABC):
    """One game, from its start to its end.

    The same seed, settings, touches and ticks make the same state, whatever else happens. What is
    drawn by chance hangs on the seed and on how often it was drawn, and on nothing besides.

    Args:
        seed: >= 0; names the game.
        **settings: the fields of its level.
    """

    seed: int

    def touch(self, x: float, y: float) -> bool:
        """A tap at (x, y), in [0, 1] of the app's area; whether anything changed."""
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """A swipe from (x1, y1) to (x2, y2), in [0, 1] of the app's area; as `touch`."""
        return False

    @property
    def tick_ms(self) -> int:
        """Milliseconds of one tick; 0 while nothing moves by itself."""
        return 0

    def tick(self) -> bool:
        """Let `tick_ms` pass; whether anything changed."""
        return False

    @abstractmethod
    def places(self) -> Mapping[str, Place]:
        """What can be touched, by the name of the call that touches it: each call's, always.

        A call whose button is not on the screen touches where it would be, in vain.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values, seed and settings apart.

        `done` must be there; beside the seed, what stands here must tell everything on which the
        rest of the game hangs, for states that are equal are taken for the same. `busy` says that
        something is still under way and will end by itself: the environment waits for it. `closed`
        says that the player has closed the game, and how.
        """
