"""Convert any value to the nearest JSON value."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

_LARGEST_BITS = 4096
DEEPEST = 200
"""Maximum nesting of lists and mappings, because the code that displays them is recursive."""
_TOO_DEEP = "(too deep)"
_JSON_SCALARS = frozenset((str, bool))
_JSON_LISTS = frozenset((list, tuple))


def to_plain(value: Any, max_depth: int = DEEPEST - 2) -> Any:
    """Return the nearest JSON value: arrays become lists, other unsupported values strings.

    Args:
        value: anything.
        max_depth: how deep lists and mappings may nest; anything deeper, as in a value that
            contains itself, becomes `_TOO_DEEP`.
    """
    # Check common types first, because this runs every turn.
    kind = type(value)
    if value is None or kind in _JSON_SCALARS:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is dict:
        return _plain_mapping(value, max_depth)
    if kind in _JSON_LISTS:
        return _plain_list(value, max_depth)
    return _plain_uncommon(value, max_depth)


def _plain_mapping(value: Mapping[Any, Any], max_depth: int) -> Any:
    if not max_depth:
        return _TOO_DEEP
    return {str(key): to_plain(item, max_depth - 1) for key, item in value.items()}


def _plain_list(value: Iterable[Any], max_depth: int) -> Any:
    return [to_plain(item, max_depth - 1) for item in value] if max_depth else _TOO_DEEP


def _plain_uncommon(value: Any, max_depth: int) -> Any:
    """Convert numbers, enums, arrays, dataclasses and subclasses of the common types."""
    if isinstance(value, bool | int | str) or value is None:
        # Python refuses to print integers with more than 4300 digits.
        if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
            return hex(value)
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist(), max_depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _plain_mapping({"type": type(value).__name__.lower(), **fields}, max_depth)
    if isinstance(value, Mapping):
        return _plain_mapping(value, max_depth)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return _plain_list(value, max_depth)
    return str(value)
