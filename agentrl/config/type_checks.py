"""Finds values of a wrong type in a configuration, and describes the expected types."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentrl.text.formatting import quoted

_MISSING = "???"
_KEYS_SHOWN = 6
_SWITCHES = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0")


def find_mistyped(value: Any, hint: Any, key: str = "") -> tuple[str, str] | None:
    """Find the first value whose type does not match that of its setting.

    Args:
        value: plain values as read from YAML; unknown keys and interpolations are skipped.
        hint: the type of the setting, or the dataclass of the whole section.
        key: dotted key of the value.

    Returns:
        The value's dotted key, and a message such as `must be a whole number, not 'many'`; None if
        all values have the right type.
    """
    # A missing value or an interpolation has no type yet.
    if value == _MISSING or (isinstance(value, str) and "${" in value):
        return None
    hint, optional = _without_none(hint)
    if value is None and optional:
        return None
    if not _has_type(value, hint):
        expected = _expected(hint) + (", or null" if optional else "")
        return key, f"must be {expected}, not {_shown(value)}"
    for inner_key, inner, inner_hint in _inner_values(value, hint, key):
        if (found := find_mistyped(inner, inner_hint, inner_key)) is not None:
            return found
    return None


def _inner_values(value: Any, hint: Any, key: str) -> list[tuple[str, Any, Any]]:
    """Yield dotted key, value and type of everything inside a section, list or mapping."""
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        known = [name for name in value if name in hints]
        return [(f"{key}.{name}" if key else name, value[name], hints[name]) for name in known]
    if origin is list:
        return [(f"{key}[{i}]", item, arguments[0]) for i, item in enumerate(value)]
    if origin is dict:
        return [(f"{key}.{name}", item, arguments[1]) for name, item in value.items()]
    return []


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Remove None from a union, and return whether it contained None."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, hint is Any
    rest = tuple(part for part in get_args(hint) if part is not type(None))
    return (rest[0] if len(rest) == 1 else Union[rest]), len(rest) < len(get_args(hint))  # noqa: UP007


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has a type, ignoring nested values; strings may spell numbers."""
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint) or origin is dict:
        return isinstance(value, Mapping)
    if origin is list:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if origin is Literal:
        return value in get_args(hint)
    if hint is str:
        return value is not None and not isinstance(value, Mapping | list)
    if hint is bool:
        return str(value).lower() in _SWITCHES
    if hint in (int, float):
        return _is_number(value, hint)
    if origin in (Union, types.UnionType):
        # Unlike elsewhere, OmegaConf does not convert strings to numbers in a union.
        return any(value in get_args(part) or type(value) is part for part in get_args(hint))
    return True  # Any


def _is_number(value: Any, kind: type[int] | type[float]) -> bool:
    # bool is an int, and OmegaConf converts strings with int("3") or float("1e-3").
    if isinstance(value, bool) or not isinstance(value, int | str | kind):
        return False
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _expected(hint: Any) -> str:
    """Describe the values accepted by a setting of this type, for a message."""
    if dataclasses.is_dataclass(hint):
        names = [field.name for field in dataclasses.fields(hint)]
        keys = ", ".join([*names[:_KEYS_SHOWN], *(["..."] if names[_KEYS_SHOWN:] else [])])
        return f"a mapping, such as {{{names[0]}: ...}} (keys: {keys})"
    if get_origin(hint) is list and dataclasses.is_dataclass(item := get_args(hint)[0]):
        return f"a list of mappings, such as [{{{dataclasses.fields(item)[0].name}: ...}}]"
    if get_origin(hint) is Literal:
        choices = ", ".join(map(repr, get_args(hint)))
        return f"one of {choices}" if get_args(hint)[1:] else choices
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(_expected, get_args(hint)))
    expected: dict[Any, str] = {
        list: "a list, such as [A, B]",
        dict: "a mapping, such as {name: value}",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
    }
    return expected.get(get_origin(hint) or hint, str(hint))


def _shown(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else "null" if value is None else str(value)
