"""What a page tells, checked: nothing that comes over its socket is trusted."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 2048
"""Characters of a message; an honest one has about 200."""
SIDES = (64, 4096)
"""Of a page, in pixels: what is smaller shows no game, what is larger is no phone."""
_SLOP = 12.0
"""CSS pixels that a finger may move and still tap: Android's 8, and a little for shaky ones."""
_LONG_PRESS_MS = 800
"""A slow phone's tap is still a tap; Android itself calls it a long press after 500."""
_LONGEST_GESTURE_MS = 3_600_000
_PAGE = re.compile(r"[0-9a-f]{32}")


class BadMessage(ValueError):
    """Something that no honest page sends."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Hello:
    """The first message of every connection."""

    page: str
    """Drawn by the page when it was loaded: a connection that came back has the same."""
    width: int
    """Of the page, in the pixels of its screen."""
    height: int
    visible: bool


@dataclass(slots=True, kw_only=True, frozen=True)
class Resized:
    """The page has another size."""

    width: int
    height: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Seen:
    """The page was hidden or has come back to the front."""

    visible: bool


@dataclass(slots=True, kw_only=True, frozen=True)
class Painted:
    """A frame is on the page."""

    frame: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Gesture:
    """One finger, from coming down to going up."""

    number: int
    """Counts from 1 on each page; sent again until it is confirmed."""
    frame: int
    """What the page showed when the finger came down."""
    x1: float
    """Where it came down and went up, in [0, 1] of the app's area; outside, beside it."""
    y1: float
    x2: float
    y2: float
    ms: int
    moved: float
    """How far it was away from its start at most, in CSS pixels."""
    cancelled: bool
    """Whether the phone took it for a gesture of its own."""

    @property
    def is_tap(self) -> bool:
        """Short and on the spot; everything else is a swipe, a long press one on the spot."""
        return self.moved <= _SLOP and self.ms < _LONG_PRESS_MS


Message = Hello | Resized | Seen | Painted | Gesture


def parse(text: str) -> Message:
    """One message.

    Raises:
        BadMessage: it is none, or a value in it cannot be.
    """
    if len(text) > LONGEST:
        raise BadMessage(f"{len(text)} characters; at most {LONGEST} are read")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"no JSON: {error}") from error
    kind = told.pop("type", None) if isinstance(told, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadMessage("no type that is known")
    make, checks = _KINDS[kind]
    if told.keys() != checks.keys():
        raise BadMessage(f"{kind} has {', '.join(checks)}, and nothing else")
    message: Message = make(**{name: check(told[name]) for name, check in checks.items()})
    return message


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise BadMessage(f"a whole number from {low} to {high} was expected")
        return value

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        # NaN is among what json reads.
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise BadMessage(f"a number from {low} to {high} was expected")
        return float(value)

    return check


def _switch(value: Any) -> bool:
    if type(value) is not bool:
        raise BadMessage("true or false was expected")
    return value


def _page(value: Any) -> str:
    if type(value) is not str or not _PAGE.fullmatch(value):
        raise BadMessage("32 digits of a page's name were expected")
    return value


_side, _count, _share = _whole(*SIDES), _whole(0, 2**31), _number(-1000, 1000)
_KINDS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Callable[[Any], Any]]]] = {
    "hello": (Hello, {"page": _page, "width": _side, "height": _side, "visible": _switch}),
    "size": (Resized, {"width": _side, "height": _side}),
    "visible": (Seen, {"visible": _switch}),
    "painted": (Painted, {"frame": _count}),
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
