"""Positions where actions touched the screen."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentrl.types import Turn

_NUMBER = r"\s*(\d{0,3}\.?\d{1,12})\s*"
_TAP = re.compile(rf"\btap\({_NUMBER},{_NUMBER}\)")
_SWIPE = re.compile(rf"\bswipe\({_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\)")


@dataclass(slots=True, kw_only=True, frozen=True)
class TouchPosition:
    """A tap, or a swipe if the end differs from the start, with coordinates in [0, 1]."""

    x: float
    y: float
    to_x: float
    to_y: float

    @property
    def moves(self) -> bool:
        """Whether the mark is a swipe."""
        return (self.x, self.y) != (self.to_x, self.to_y)


def touch_of(turn: Turn) -> TouchPosition | None:
    """Find where a turn's first action touched the screen; None if it did not or is unknown.

    Recognizes `[x, y]` and `[x1, y1, x2, y2]`, mappings with these keys, and `tap(x, y)` and
    `swipe(x1, y1, x2, y2)` in the text of the action or the reply.
    """
    if turn.chunk:
        return touch_of_action(turn.chunk[0].action)
    return None if turn.parse_error is not None else touch_of_action(turn.action, turn.reply)


def touch_of_action(action: object, reply: str = "") -> TouchPosition | None:
    """Find where an action, or the reply that contains it, touched the screen; see `touch_of`."""
    numbers = _numbers_of(action)
    if not numbers and not isinstance(action, list | Mapping):
        numbers = _numbers_in(action if isinstance(action, str) else reply)
    if len(numbers) == 2:
        numbers = (*numbers, *numbers)
    if len(numbers) != 4 or not all(0 <= n <= 1 for n in numbers):
        return None
    x, y, to_x, to_y = map(float, numbers)
    return TouchPosition(x=x, y=y, to_x=to_x, to_y=to_y)


def _numbers_of(action: object) -> Sequence[float]:
    if isinstance(action, Mapping):
        action = [action[k] for k in ("x", "y", "x1", "y1", "x2", "y2") if k in action]
    if isinstance(action, list | tuple) and all(isinstance(n, int | float) for n in action):
        return action
    return ()


def _numbers_in(text: str) -> Sequence[float]:
    matches = _SWIPE.findall(text) or _TAP.findall(text)
    return [float(n) for n in matches[-1]] if matches else ()
