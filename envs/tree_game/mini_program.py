"""A game inside WeChat: the capsule above it, the menu behind the dots, and the way out.

The capsule at the top right is WeChat's own, and no part of the game: its dots open a menu, its
circle closes the game and leads back to WeChat's chats, from which an entry opens it again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agentrl.envs.phone_game.boxes import Box, to_app
from agentrl.envs.phone_game.rules import GameRules, Place

CAPSULE = Box(0.755, to_app(0.05), 0.975, to_app(0.1))
DOTS = Box(CAPSULE.left, CAPSULE.top, CAPSULE.center[0], CAPSULE.bottom)
CIRCLE = Box(CAPSULE.center[0], CAPSULE.top, CAPSULE.right, CAPSULE.bottom)
SHEET = Box(0.0, 0.72, 1.0, 1.0)
"""The menu, at the foot of the screen."""
ENTRY = Box(0.0, to_app(0.2), 1.0, to_app(0.29))
"""Of the game among the chats."""


class Shows(StrEnum):
    """What WeChat shows."""

    GAME = "game"
    MENU = "menu"
    """The game, with the menu above it."""
    CHATS = "chats"


class MiniProgram(GameRules):
    """A game, and what WeChat puts around it.

    Args:
        game: what is played.
        is_open: whether it is open already; else WeChat shows its chats, with an entry for it.
    """

    def __init__(self, game: GameRules, *, is_open: bool) -> None:
        self.game = game
        self.seed = game.seed
        self.shows = Shows.GAME if is_open else Shows.CHATS
        self.closed = None if is_open else "the game has not been opened"

    def touch(self, x: float, y: float) -> bool:
        """A touch of the capsule or of the menu is WeChat's, another one the game's."""
        if self.shows is Shows.CHATS:
            return ENTRY.holds(x, y) and self._open()
        if CIRCLE.holds(x, y):
            self.shows, self.closed = Shows.CHATS, "the capsule's circle closes the game"
        elif self.shows is Shows.MENU:  # what stands in it does nothing here, but close it
            self.shows = Shows.GAME
        elif DOTS.holds(x, y):
            self.shows = Shows.MENU
        else:
            return self.game.touch(x, y)
        return True

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """The game's, where nothing is above it."""
        return self.shows is Shows.GAME and self.game.swipe(x1, y1, x2, y2)

    @property
    def tick_ms(self) -> int:
        """The game's; below a menu it stands still."""
        return self.game.tick_ms if self.shows is Shows.GAME else 0

    def tick(self) -> bool:
        """The game's."""
        return self.game.tick()

    def places(self) -> Mapping[str, Place]:
        """The game's: the capsule is none of them."""
        return self.game.places()

    def state(self) -> dict[str, Any]:
        """The game's, and what WeChat shows."""
        closed = {} if self.closed is None else {"closed": self.closed}
        return {**self.game.state(), "shows": str(self.shows), **closed}

    def _open(self) -> bool:
        self.shows, self.closed = Shows.GAME, None
        return True
