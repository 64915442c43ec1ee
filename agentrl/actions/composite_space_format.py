"""The text format of `Dict` and `Tuple` actions: one JSON object with all components.

::

    tag   <action>{"move": "left", "force": 0.5}</action>
    tool  <tool_call>{"name": "act", "arguments": {"move": "left", "force": 0.5}}</tool_call>
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.actions.action_calls import checked_style, without_tags
from agentrl.actions.reply_values import check_keys, json_object
from agentrl.actions.space_values import (
    choice_names,
    listed,
    parameter_names,
    read_choice,
    read_number,
    read_text,
    write_number,
)
from agentrl.errors import ActionError, ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.reply_tags import action_tag_content, tag_content

_CALL = "act"
_NUMBERS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


class StructuredFormat:
    """Format of a `Dict` or `Tuple` space with any nesting depth."""

    def __init__(
        self,
        space: "spaces.Dict | spaces.Tuple[Any]",
        names: Mapping[str, Any] | Sequence[Any] | None = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
    ) -> None:
        self._style = checked_style(style)
        self._is_tuple = isinstance(space, spaces.Tuple)
        # Convert a `Tuple` to a `Dict`, because JSON objects name their components.
        if isinstance(space, spaces.Tuple):
            self._keys = parameter_names(parameters, len(space.spaces))
            names = dict(zip(self._keys, _entries(space, names), strict=True))
            space = spaces.Dict(dict(zip(self._keys, space.spaces, strict=True)))
        elif parameters is not None:
            raise ConfigError(
                f"env.translator_kwargs.parameters={list(parameters)} cannot be used, because the "
                f"components of {space} already have names"
            )
        else:
            self._keys = tuple(space.spaces)
        self._space, self._names = space, names
        # Describe once to check the space and the names.
        _describe(space, names, "")

    def describe(self) -> str:
        """Describe the components and their possible values."""
        example = ", ".join(f"{json.dumps(key)}: ..." for key in self._keys)
        meaning = _describe(self._space, self._names, "")
        return f"Answer {self._enclosed(f'{{{example}}}')} with {meaning}."

    def parse(self, reply: str) -> Any:
        if self._style == "tag":
            given = json_object(action_tag_content(reply), "a JSON object")
        else:
            call = json_object(tag_content(reply, "tool_call"), "a JSON object with a name")
            if call.get("name") != _CALL:
                raise ActionError(
                    f"unknown action {quoted(call.get('name'))}; the only action is {_CALL!r}"
                )
            given = call.get("arguments", {})
        action = _read(self._space, self._names, given, "")
        return tuple(action[key] for key in self._keys) if self._is_tuple else action

    def format(self, action: Any) -> str:
        if self._is_tuple:
            action = dict(zip(self._keys, action, strict=True))
        return self._enclosed(without_tags(_write(self._space, self._names, action)))

    def _enclosed(self, arguments: str) -> str:
        if self._style == "tag":
            return f"<action>{arguments}</action>"
        return f'<tool_call>{{"name": "{_CALL}", "arguments": {arguments}}}</tool_call>'


def _entries(space: "spaces.Dict | spaces.Tuple[Any]", names: Any) -> list[Any]:
    """Return the names given for each component's choices."""
    if isinstance(space, spaces.Tuple):
        given = [None] * len(space.spaces) if names is None else names
        if isinstance(given, list | tuple) and len(given) == len(space.spaces):
            return list(given)
        raise ConfigError(
            f"env.translator_kwargs.names must be a list with the names, or null, for each of the "
            f"{len(space.spaces)} components of {space}, got {names}"
        )
    given = {} if names is None else names
    if isinstance(given, Mapping) and set(given) <= set(space.spaces):
        return [given.get(key) for key in space.spaces]
    raise ConfigError(
        f"env.translator_kwargs.names must have the keys {', '.join(space.spaces)}, got {names}"
    )


def _parts(space: "spaces.Dict | spaces.Tuple[Any]", names: Any) -> "list[tuple[str, Any, Any]]":
    """Return the key, space and names of each component."""
    parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    own = _entries(space, names)
    return [(str(key), part, given) for (key, part), given in zip(parts, own, strict=True)]


def _describe(space: "gymnasium.Space[Any]", names: Any, name: str) -> str:
    """Describe the values that a component may have."""
    if isinstance(space, spaces.Dict) and not all(isinstance(key, str) for key in space.spaces):
        raise ConfigError(
            f"the action space has the keys {list(space.spaces)}, but JSON keys must be strings; "
            "write a translator (docs/extending/environment.md)"
        )
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inside = "; ".join(_describe(part, given, key) for key, part, given in _parts(space, names))
        kind = "an object" if isinstance(space, spaces.Dict) else f"a list of {len(space.spaces)}"
        return f"{name} {kind} ({inside})" if name else inside
    if isinstance(space, spaces.Discrete):
        key = f"env.translator_kwargs.names.{name}"
        return f"{name} one of {listed(choice_names(names, int(space.n), key, int(space.start)))}"
    if names is not None:
        raise ConfigError(
            f"env.translator_kwargs.names.{name}={names} cannot be used, because {space} has no "
            "choices to name"
        )
    if isinstance(space, spaces.Text):
        return f"{name} a text"
    if not isinstance(space, _NUMBERS):
        raise ConfigError(
            f"the component {name!r} of the action space, {space}, has no built-in text format; "
            "write a translator (docs/extending/environment.md)"
        )
    low, high, whole = _bounds(space)
    kind = "whole number" if whole else "number"
    shape = " x ".join(map(str, low.shape))
    amount = f"a list of {shape} {kind}s" if shape else f"a {kind}"
    if not low.size:
        return f"{name} {amount}"
    return f"{name} {amount} from {low.min():g} to {high.max():g}"


def _bounds(space: Any) -> tuple[Any, Any, bool]:
    """Return the smallest and largest numbers, and whether they are whole."""
    if isinstance(space, spaces.Box):
        return space.low, space.high, bool(np.issubdtype(space.dtype, np.integer))
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8), True
    return space.start, space.start + space.nvec - 1, True


def _read(space: "gymnasium.Space[Any]", names: Any, value: Any, name: str) -> Any:
    """Convert parsed JSON to a component."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            raise ActionError(f"{name or 'the arguments'}: {quoted(value)} is not an object")
        check_keys(name or "the action", value, space.spaces)
        return {
            key: _read(part, given, value[key], f"{name}.{key}" if name else key)
            for key, part, given in _parts(space, names)
        }
    if isinstance(space, spaces.Tuple):
        values = zip(_parts(space, names), _listed(value, len(space.spaces), name), strict=True)
        return tuple(_read(part, own, one, f"{name}[{k}]") for (k, part, own), one in values)
    if isinstance(space, spaces.Discrete):
        word = value if isinstance(value, str) else json.dumps(value)
        start = int(space.start)
        return start + read_choice(word, choice_names(names, int(space.n), "", start), name)
    if isinstance(space, spaces.Text):
        if not isinstance(value, str):
            raise ActionError(f"{name} is {quoted(value)}, not a string")
        return read_text(value, space)
    low, high, whole = _bounds(space)
    numbers = np.array(_read_numbers(value, low, high, whole, name), dtype=space.dtype)
    # NumPy gives an empty array a different shape.
    return numbers.reshape(low.shape)


def _read_numbers(value: Any, low: Any, high: Any, whole: bool, name: str) -> Any:
    if not low.shape:
        return read_number(value, name, low, high, whole=whole)
    rows = zip(_listed(value, len(low), name), low, high, strict=True)
    return [_read_numbers(*row, whole, f"{name}[{k}]") for k, row in enumerate(rows)]


def _listed(value: Any, count: int, name: str) -> list[Any]:
    if isinstance(value, list) and len(value) == count:
        return value
    raise ActionError(f"{name}: {quoted(value)} is not a list of length {count}")


def _write(space: "gymnasium.Space[Any]", names: Any, value: Any) -> str:
    """Write a component as JSON."""
    if isinstance(space, spaces.Dict):
        inside = ((key, _write(p, own, value[key])) for key, p, own in _parts(space, names))
        return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in inside) + "}"
    if isinstance(space, spaces.Tuple):
        values = zip(_parts(space, names), value, strict=True)
        return "[" + ", ".join(_write(part, own, one) for (_, part, own), one in values) + "]"
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        choice = choice_names(names, int(space.n), "", start)[int(value) - start]
        # Without names, choices are numbers in JSON as well.
        return choice if names is None else json.dumps(choice, ensure_ascii=False)
    if isinstance(space, spaces.Text):
        return json.dumps(str(value), ensure_ascii=False)
    return _write_numbers(np.asarray(value), *_bounds(space))


def _write_numbers(value: Any, low: Any, high: Any, whole: bool) -> str:
    if not low.shape:
        return write_number(value, low, high, whole=whole)
    rows = zip(value, low, high, strict=True)
    return "[" + ", ".join(_write_numbers(*row, whole) for row in rows) + "]"
