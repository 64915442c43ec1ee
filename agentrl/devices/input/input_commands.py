"""The `input` commands that touch a phone's screen and press its keys."""

import re

from agentrl.actions.screen_actions import (
    DRAG_S,
    LONG_PRESS_S,
    SWIPE_S,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
)

Touch = Tap | LongPress | Swipe | Drag
_SECONDS = {LongPress: LONG_PRESS_S, Swipe: SWIPE_S, Drag: DRAG_S}
_KEY = re.compile(r"[A-Z0-9_]{1,40}", re.ASCII)


def input_command(
    action: Touch | Key, size: tuple[int, int], duration_s: float | None = None
) -> tuple[str, ...]:
    """The shell command that performs a touch or a key press.

    Args:
        action: what to do.
        size: width and height of the screen, in pixels.
        duration_s: of a long press, swipe or drag; None takes the default.

    Raises:
        ValueError: a position outside [0, 1], or an invalid key name.
    """
    if isinstance(action, Key):
        return ("input", "keyevent", key_code(action.name))
    if isinstance(action, Tap):
        return ("input", "tap", *_pixels(action.x, action.y, size))
    ms = str(round(1000 * (_SECONDS[type(action)] if duration_s is None else duration_s)))
    if isinstance(action, LongPress):
        here = _pixels(action.x, action.y, size)
        return ("input", "swipe", *here, *here, ms)
    ends = (*_pixels(action.x1, action.y1, size), *_pixels(action.x2, action.y2, size))
    return ("input", "swipe" if isinstance(action, Swipe) else "draganddrop", *ends, ms)


def to_pixel(position: float, length: int) -> str:
    """The pixel at a position in [0, 1] along a side, as a command argument.

    Raises:
        ValueError: the position is outside [0, 1].
    """
    if not 0 <= position <= 1:
        raise ValueError(f"{position} is outside the screen; positions are in [0, 1]")
    return str(min(int(position * length), length - 1))


def key_code(name: str) -> str:
    """`KEYCODE_BACK` for `BACK`.

    Raises:
        ValueError: not a valid key name.
    """
    name = name.upper().removeprefix("KEYCODE_")
    if not _KEY.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid key name")
    return f"KEYCODE_{name}"


def _pixels(x: float, y: float, size: tuple[int, int]) -> tuple[str, str]:
    return to_pixel(x, size[0]), to_pixel(y, size[1])
