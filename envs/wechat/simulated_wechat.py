"""A game inside WeChat: the capsule on top of it, its menu, and the way out.

The capsule at the top right belongs to WeChat, not to the game: its dots open a menu, its circle
closes the game and returns to WeChat's chats, where an entry opens the game again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agentrl.envs.android.phone_game.boxes import Box, to_app
from agentrl.envs.android.phone_game.rules import GameRules, TouchTarget

CAPSULE = Box(0.755, to_app(0.05), 0.975, to_app(0.1))
DOTS = Box(CAPSULE.left, CAPSULE.top, CAPSULE.center[0], CAPSULE.bottom)
CIRCLE = Box(CAPSULE.center[0], CAPSULE.top, CAPSULE.right, CAPSULE.bottom)
SHEET = Box(0.0, 0.72, 1.0, 1.0)
"""The menu at the bottom of the screen."""
ENTRY = Box(0.0, to_app(0.2), 1.0, to_app(0.29))
"""The game's entry in the list of chats."""


class Shows(StrEnum):
    """Screens of WeChat."""

    GAME = "game"
    MENU = "menu"
    """The game, with the menu above it."""
    CHATS = "chats"


class MiniProgram(GameRules):
    """A game together with WeChat's own controls.

    Args:
        game: the rules of the game.
        is_open: whether the game is open; if not, WeChat shows its chats with an entry for it.
    """

    def __init__(self, game: GameRules, *, is_open: bool) -> None:
        self.game = game
        self.seed = game.seed
        self.shows = Shows.GAME if is_open else Shows.CHATS
        self.closed = None if is_open else "the game has not been opened"

    def touch(self, x: float, y: float) -> bool:
        """Pass touches of the capsule and the menu to WeChat, and all others to the game."""
        if self.shows is Shows.CHATS:
            return ENTRY.contains(x, y) and self._open()
        if CIRCLE.contains(x, y):
            self.shows, self.closed = Shows.CHATS, "the capsule's circle closes the game"
        elif self.shows is Shows.MENU:  # every entry of the menu just closes it
            self.shows = Shows.GAME
        elif DOTS.contains(x, y):
            self.shows = Shows.MENU
        else:
            return self.game.touch(x, y)
        return True

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Pass swipes to the game unless the menu covers it."""
        return self.shows is Shows.GAME and self.game.swipe(x1, y1, x2, y2)

    @property
    def tick_ms(self) -> int:
        """The game's tick; 0 while the menu covers the game."""
        return self.game.tick_ms if self.shows is Shows.GAME else 0

    def tick(self) -> bool:
        """Advance the game by one tick."""
        return self.game.tick()

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the game's targets, without the capsule."""
        return self.game.touch_targets()

    def state(self) -> dict[str, Any]:
        """Return the game's state and the screen that WeChat shows."""
        closed = {} if self.closed is None else {"closed": self.closed}
        return {**self.game.state(), "shows": str(self.shows), **closed}

    def _open(self) -> bool:
        self.shows, self.closed = Shows.GAME, None
        return True
