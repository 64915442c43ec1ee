"""Swipes in four directions, anywhere on the screen."""

from collections.abc import Mapping

from agentrl.envs.phone_game.boxes import SwipePath

SWIPES: Mapping[str, SwipePath] = {
    "up": SwipePath(0.5, 0.65, 0.5, 0.45),
    "down": SwipePath(0.5, 0.45, 0.5, 0.65),
    "left": SwipePath(0.7, 0.55, 0.3, 0.55),
    "right": SwipePath(0.3, 0.55, 0.7, 0.55),
}
"""One swipe for each direction."""
_TALL = 16 / 9


def direction(x1: float, y1: float, x2: float, y2: float) -> str:
    """The main direction of a swipe in [0, 1] of a portrait screen: up, down, left or right."""
    across, down = x2 - x1, (y2 - y1) * _TALL
    if abs(across) >= abs(down):
        return "right" if across >= 0 else "left"
    return "down" if down > 0 else "up"
