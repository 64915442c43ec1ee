"""Parse values in replies: numbers, points, text and keys. Invalid values raise ActionError."""

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from agentrl.errors import ActionError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean

KEYS = ("BACK", "HOME", "ENTER", "DEL", "MENU", "VOLUME_UP", "VOLUME_DOWN")
MAX_TEXT = 500
"""Maximum number of characters that can be typed at once."""
OUTSIDE = ("refuse", "clamp")
"""Ways to handle a position outside the screen."""
MAX_WAIT_S = 60.0
"""Longest pause that a dialect can request."""
# Longer replies are not parsed.
_MAX_REPLY = 100_000


@dataclass(slots=True, kw_only=True, frozen=True)
class CoordinateScale:
    """Scale of the numbers that represent positions in [0, 1]."""

    sides: tuple[float, float]
    """Numbers that represent the right and the lower edge."""
    last: tuple[float, float] | None = None
    """Largest valid numbers; None means the last pixel, or `sides` if not `pixels`."""
    pixels: bool = False
    """Whether whole numbers represent the middle of a pixel."""
    clamp: bool = False
    """Whether to move numbers outside the screen to the edge."""

    def position(self, numbers: tuple[float, float], name: str) -> tuple[float, float]:
        """Convert two numbers to a position."""
        x, y = (
            self._within(number, side, last, name)
            for number, side, last in zip(numbers, self.sides, self._largest(), strict=True)
        )
        return x, y

    def numbers(self, x: float, y: float) -> list[int]:
        """Convert a position to the nearest whole numbers, or to the pixel that contains it."""
        whole = int if self.pixels else round
        return [
            min(whole(position * side), int(last))
            for position, side, last in zip((x, y), self.sides, self._largest(), strict=True)
        ]

    def _largest(self) -> tuple[float, float]:
        width, height = self.sides
        return self.last or ((width - 1, height - 1) if self.pixels else self.sides)

    def _within(self, number: float, side: float, last: float, name: str) -> float:
        if self.clamp:
            number = min(max(number, 0.0), last)
        if not 0 <= number <= last:
            raise ActionError(
                f"{name}: {number:g} is outside the screen; numbers are from 0 to {last:g}"
            )
        return (number + 0.5) / side if self.pixels else number / side


def json_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object; `what` names it in the error."""
    try:
        value = json.loads(text[:_MAX_REPLY])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ActionError(f"{quoted(text.strip())} is not {what}")
    return value


def check_keys(
    name: str, given: Mapping[str, Any], required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Check that an action has all required arguments and no unknown arguments."""
    if missing := [key for key in required if key not in given]:
        raise ActionError(f"{name} requires {missing[0]}, which is missing")
    if unknown := [key for key in given if key not in (*required, *optional)]:
        known = [*required, *optional]
        raise ActionError(
            f"{name} does not accept {quoted(unknown[0])}{did_you_mean(unknown[0], known)}; it "
            f"accepts {', '.join(known) or 'no arguments'}"
        )


def number(value: Any, name: str) -> float:
    """Check that a value is a finite number and return it."""
    if is_finite(value):
        return float(value)
    raise ActionError(f"{name}: {quoted(value)} is not a number")


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number that fits into a float."""
    # Compare instead of converting, because an integer may be too large for a float.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def point(value: Any, name: str) -> tuple[float, float]:
    """Check that a value is a list of two numbers and return them as a point."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ActionError(f"{name}: {quoted(value)} is not a point such as [120, 340]")
    return number(value[0], name), number(value[1], name)


def typed_text(value: Any, name: str, max_text: int = MAX_TEXT) -> str:
    """Check that a value is a string that can be typed and return it."""
    if not isinstance(value, str):
        raise ActionError(f"{name}: {quoted(value)} is not a string")
    if len(value) > max_text:
        raise ActionError(f"{name} takes at most {max_text} characters, not {len(value)}")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise ActionError(
            f"{name}: {quoted(value)} contains a NUL character or a lone surrogate, which cannot "
            "be typed"
        )
    return value


def one_of(value: Any, name: str, known: Collection[str]) -> str:
    """Check that a value is one of the known names and return it."""
    if not isinstance(value, str) or value not in known:
        raise ActionError(
            f"{name}: {quoted(value)} must be one of {', '.join(known)}"
            f"{did_you_mean(str(value), known)}"
        )
    return value


def key_name(value: Any, name: str) -> str:
    """Read the name of a key, such as `VOLUME_UP`, in any case and with or without `KEYCODE_`."""
    key = value.upper().removeprefix("KEYCODE_") if isinstance(value, str) else value
    return one_of(key, name, KEYS)


def seconds(value: Any, name: str) -> float:
    """Check that a value is a pause in seconds, from 0 to `MAX_WAIT_S`, and return it."""
    length = number(value, name)
    if not 0 <= length <= MAX_WAIT_S:
        raise ActionError(f"{name} takes a number of seconds from 0 to {MAX_WAIT_S:g}")
    return length
