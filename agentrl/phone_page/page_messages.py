"""Parses and validates messages from a page, because nothing from its socket is trusted."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 2048
"""Longest allowed message in characters; normal messages have about 200."""
SIDES = (64, 4096)
"""Smallest and largest side of a page, in pixels."""
_SLOP = 12.0
"""CSS pixels that a finger may move during a tap (Android's 8 plus some tolerance)."""
_LONG_PRESS_MS = 800
"""Duration from which a touch is a long press; Android uses 500, but taps take longer on slow
phones."""
_LONGEST_GESTURE_MS = 3_600_000
_PAGE = re.compile(r"[0-9a-f]{32}")


class BadMessage(ValueError):
    """A message that our pages never send."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PageHello:
    """The first message of every connection."""

    page: str
    """Random id drawn when the page was loaded; the same after a reconnect."""
    width: int
    """Width of the page in its screen's pixels."""
    height: int
    visible: bool


@dataclass(slots=True, kw_only=True, frozen=True)
class PageResized:
    """The page has a new size."""

    width: int
    height: int


@dataclass(slots=True, kw_only=True, frozen=True)
class VisibilityChanged:
    """The page was hidden or became visible."""

    visible: bool


@dataclass(slots=True, kw_only=True, frozen=True)
class FramePainted:
    """The page painted a frame."""

    frame: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Gesture:
    """A one-finger gesture, from touching the screen to leaving it."""

    number: int
    """Gesture number, counted from 1 on each page; resent until confirmed."""
    frame: int
    """Number of the frame shown when the finger touched the screen."""
    x1: float
    """Start and end in [0, 1] of the app's area; values beyond that are outside the area."""
    y1: float
    x2: float
    y2: float
    ms: int
    moved: float
    """Largest distance from the start, in CSS pixels."""
    cancelled: bool
    """Whether the phone used the touch for a system gesture."""

    @property
    def is_tap(self) -> bool:
        """Whether the touch is short and does not move; others, even long presses, are swipes."""
        return self.moved <= _SLOP and self.ms < _LONG_PRESS_MS


PageMessage = PageHello | PageResized | VisibilityChanged | FramePainted | Gesture


def parse_message(text: str) -> PageMessage:
    """Parse one message; raise BadMessage if our pages would not send it."""
    if len(text) > LONGEST:
        raise BadMessage(f"the message has {len(text)} characters; the limit is {LONGEST}")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"the message is not JSON: {error}") from error
    kind = fields.pop("type", None) if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadMessage("the message has an unknown type")
    make, checks = _KINDS[kind]
    # Our pages send exactly these fields.
    if fields.keys() != checks.keys():
        raise BadMessage(f"{kind} must have exactly the fields {', '.join(checks)}")
    message: PageMessage = make(**{name: check(fields[name]) for name, check in checks.items()})
    return message


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise BadMessage(f"expected an integer from {low} to {high}")
        return value

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        # json also parses NaN, and `True` is an int.
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise BadMessage(f"expected a number from {low} to {high}")
        return float(value)

    return check


def _switch(value: Any) -> bool:
    if type(value) is not bool:
        raise BadMessage("expected true or false")
    return value


def _page(value: Any) -> str:
    if type(value) is not str or not _PAGE.fullmatch(value):
        raise BadMessage("expected a page id of 32 hex digits")
    return value


_side, _count, _share = _whole(*SIDES), _whole(0, 2**31), _number(-1000, 1000)
_KINDS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Callable[[Any], Any]]]] = {
    "hello": (PageHello, {"page": _page, "width": _side, "height": _side, "visible": _switch}),
    "size": (PageResized, {"width": _side, "height": _side}),
    "visible": (VisibilityChanged, {"visible": _switch}),
    "painted": (FramePainted, {"frame": _count}),
    "gesture": (
        Gesture,
        {
            "number": _whole(1, 2**31),
            "frame": _count,
            "x1": _share,
            "y1": _share,
            "x2": _share,
            "y2": _share,
            "ms": _whole(0, _LONGEST_GESTURE_MS),
            "moved": _number(0, 1e5),
            "cancelled": _switch,
        },
    ),
}
