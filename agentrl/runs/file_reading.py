"""Read text and JSON files of a run, which may be damaged or from an untrusted source."""

import json
import sys
from pathlib import Path
from typing import Any, TypeGuard

from agentrl.files import open_regular

_LARGEST = 64 << 20
"""Maximum number of bytes to read of a file; real files have a few thousand."""


def read_text(file: Path) -> str | None:
    """Return the text of a file, or None if it is not a regular file or cannot be read."""
    try:
        with open(file, "rb", opener=open_regular) as opened:
            return opened.read(_LARGEST).decode(errors="replace")
    except OSError:
        return None


def load_json(file: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: the file is not a regular file, or cannot be read.
        ValueError: the file is damaged.
    """
    with open(file, "rb", opener=open_regular) as opened:
        text = opened.read(_LARGEST)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the values are nested too deeply") from None


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file is missing or damaged."""
    try:
        return as_object(load_json(file))
    except (OSError, ValueError):
        return {}


def as_object(value: object) -> dict[str, Any]:
    """Return a value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_integer(value: object) -> int | None:
    """Return a value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        # Excludes NaN, infinity, and integers too large for a float.
        and abs(value) <= sys.float_info.max
    )
