"""Text formats for the actions of Gymnasium spaces.

| space | style `tag` | style `tool` |
|---|---|---|
| `Discrete` | `<action>left</action>` | `{"name": "left", "arguments": {}}` |
| `MultiDiscrete`, `MultiBinary` | `<action>act(left, jump)</action>` | `{"name": "act", ...}` |
| `Box` | `<action>act(0.5, -1)</action>` | `{"name": "act", ...}` |
| `Text` | `<action>any words</action>` | `{"name": "say", "arguments": {"text": "any words"}}` |
| `Dict`, `Tuple` | `<action>{"move": "left"}</action>` | `{"name": "act", ...}` |
| `ScreenActionSpace` | `<action>tap(0.21, 0.70)</action>` | `{"name": "tap", ...}` |
"""

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.actions.action_calls import ActionSet, checked_style, in_json
from agentrl.actions.composite_space_format import StructuredFormat
from agentrl.actions.dialects.tag import Tag
from agentrl.actions.dialects.tool import Tool
from agentrl.actions.screen_action_space import ScreenActionSpace
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
from agentrl.text.reply_tags import action_tag_content

# Maximum number of action names that the instructions list.
_MOST_NAMES = 30


class ActionFormat(Protocol):
    """The text format of one action space; `parse` is the inverse of `format`."""

    def describe(self) -> str:
        """Describe the answer format, for instructions."""

    def parse(self, reply: str) -> Any:
        """Parse the action in a reply."""

    def format(self, action: Any) -> str:
        """Write a reply that contains only this action."""


class DiscreteFormat:
    """Format of a `Discrete` space: each action has a name."""

    def __init__(
        self, space: spaces.Discrete, names: Sequence[Any] | None = None, style: str = "tag"
    ) -> None:
        self._start = int(space.start)
        key = "env.translator_kwargs.names"
        self.names = choice_names(names, int(space.n), key, self._start)
        """Names of the actions, in order."""
        self._calls = ActionSet(self.names, style)

    def describe(self) -> str:
        """List all names, or the first and the last if there are many."""
        if len(self.names) <= _MOST_NAMES:
            return f"Answer with one of {self._calls.describe()}."
        first, last = (self._calls.format(self.names[index]) for index in (0, -1))
        return f"Answer with one of {first} to {last}."

    def parse(self, reply: str) -> int:
        return self._start + self.names.index(self._calls.parse(reply).name)

    def format(self, action: Any) -> str:
        return self._calls.format(self.names[int(action) - self._start])


class MultiDiscreteFormat:
    """Format of a `MultiDiscrete` or `MultiBinary` space: one choice per component."""

    def __init__(
        self,
        space: spaces.MultiDiscrete | spaces.MultiBinary,
        names: Sequence[Any] | None = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
    ) -> None:
        parts = _parts(space)
        if isinstance(space, spaces.MultiBinary):
            counts, self._starts = [2] * parts, [0] * parts
        else:
            counts = [int(count) for count in space.nvec]
            self._starts = [int(start) for start in space.start]
        given = names if names is not None else [None] * len(counts)
        if len(given) != len(counts):
            raise ConfigError(
                f"env.translator_kwargs.names must be {len(counts)} lists, one per component of "
                f"{space}, got {list(given)}"
            )
        self._names = [
            choice_names(part, count, f"env.translator_kwargs.names[{k}]", start)
            for k, (part, count, start) in enumerate(zip(given, counts, self._starts, strict=True))
        ]
        self._parameters = parameter_names(parameters, len(counts))
        self._calls = ActionSet([f"act({', '.join(self._parameters)})"], style)

    def describe(self) -> str:
        """Describe the signature and the choices of each component."""
        parts = (
            f"{parameter} one of {listed(names)}"
            for parameter, names in zip(self._parameters, self._names, strict=True)
        )
        return f"Answer {self._calls.describe()}: {'; '.join(parts)}."

    def parse(self, reply: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        words = [_word(argument) for argument in self._calls.parse(reply).arguments]
        chosen = [
            start + read_choice(word, names, parameter)
            for word, start, names, parameter in zip(
                words, self._starts, self._names, self._parameters, strict=True
            )
        ]
        return np.array(chosen, dtype=np.int64)

    def format(self, action: Any) -> str:
        chosen = (int(a) - s for a, s in zip(action, self._starts, strict=True))
        return self._calls.format(
            "act", *(names[index] for names, index in zip(self._names, chosen, strict=True))
        )


class BoxFormat:
    """Format of a one-dimensional `Box`: one number per component."""

    def __init__(
        self, space: spaces.Box, parameters: Sequence[str] | None = None, style: str = "tag"
    ) -> None:
        self._space = space
        self._parameters = parameter_names(parameters, _parts(space))
        self._calls = ActionSet([f"act({', '.join(self._parameters)})"], style)
        self._whole = np.issubdtype(space.dtype, np.integer)

    def describe(self) -> str:
        bounds = zip(self._space.low, self._space.high, strict=True)
        parts = (
            f"{parameter} from {low:g} to {high:g}"
            for parameter, (low, high) in zip(self._parameters, bounds, strict=True)
        )
        kind = "whole numbers" if self._whole else "numbers"
        return f"Answer {self._calls.describe()} with {kind}: {', '.join(parts)}."

    def parse(self, reply: str) -> np.ndarray[Any, Any]:
        """See ActionFormat.parse; a number outside its bounds is an error."""
        numbers = []
        bounds = zip(self._space.low, self._space.high, strict=True)
        given = zip(self._parameters, self._calls.parse(reply).arguments, bounds, strict=True)
        for name, argument, (low, high) in given:
            # If an argument is not a number, the error message quotes it as it was written.
            value: Any = argument
            with contextlib.suppress(ValueError, RecursionError):
                parsed = json.loads(argument, parse_constant=lambda _: math.nan)
                value = argument if parsed is None else parsed
            numbers.append(read_number(value, name, low, high, whole=self._whole))
        return np.array(numbers, dtype=self._space.dtype)

    def format(self, action: Any) -> str:
        """See ActionFormat.format; uses three decimals if that stays within the bounds."""
        low, high = self._space.low, self._space.high
        arguments = []
        for value, least, most in zip(action, low, high, strict=True):
            arguments.append(write_number(value, least, most, whole=self._whole))
        return self._calls.format("act", *arguments)


class TextFormat:
    """Format of a `Text` space: the text inside the tags."""

    def __init__(self, space: spaces.Text, style: str = "tag") -> None:
        self._space = space
        self._calls = ActionSet(["say(text)"], style)

    def describe(self) -> str:
        form = (
            self._calls.describe() if self._calls.style == "tool" else "<action>your text</action>"
        )
        return f"Answer {form}."

    def parse(self, reply: str) -> str:
        if self._calls.style == "tool":
            text = str(json.loads(self._calls.parse(reply).arguments[0]))
        else:
            text = action_tag_content(reply).strip()
        return read_text(text, self._space)

    def format(self, action: Any) -> str:
        if self._calls.style == "tool":
            return self._calls.format("say", in_json(str(action)))
        return f"<action>{action}</action>"


class ScreenFormat:
    """Format of a `ScreenActionSpace`: the dialects `tag` and `tool`."""

    def __init__(self, space: ScreenActionSpace, style: str = "tag") -> None:
        self._space, self._dialect = space, Tool() if checked_style(style) == "tool" else Tag()
        self._screen = self._dialect.screen((1, 1))  # positions do not depend on its size

    def describe(self) -> str:
        return self._dialect.answer_format(self._space.types, self._screen)

    def parse(self, reply: str) -> Any:
        action = self._dialect.parse(reply, self._screen)
        self._space.check(action)
        return action

    def format(self, action: Any) -> str:
        return self._dialect.spell(action, self._screen)


def action_format_for(
    space: "gymnasium.Space[Any]",
    names: Any = None,
    parameters: Sequence[str] | None = None,
    style: str = "tag",
) -> ActionFormat:
    """Return the text format of an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box, Text, Dict, Tuple or ScreenActionSpace.
        names: names of the actions, or of each component's choices; None uses numbers. For a Dict,
            a mapping from the keys of its components.
        parameters: names of an action's components.
        style: `tag` or `tool`.
    """
    nameless = (spaces.Box, spaces.Text, ScreenActionSpace)
    if names is not None and isinstance(space, nameless):
        raise ConfigError(
            f"env.translator_kwargs.names={list(names)} cannot be used, because {space} has no "
            "discrete actions to name"
        )
    if parameters is not None and isinstance(
        space, spaces.Discrete | spaces.Text | ScreenActionSpace
    ):
        raise ConfigError(
            f"env.translator_kwargs.parameters={list(parameters)} cannot be used, because {space} "
            "has no components to name"
        )
    if isinstance(space, spaces.Discrete):
        return DiscreteFormat(space, names, style)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return MultiDiscreteFormat(space, names, parameters, style)
    if isinstance(space, spaces.Box):
        return BoxFormat(space, parameters, style)
    if isinstance(space, spaces.Text):
        return TextFormat(space, style)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return StructuredFormat(space, names, parameters, style)
    if isinstance(space, ScreenActionSpace):
        return ScreenFormat(space, style)
    raise ConfigError(
        f"the action space {space} has no built-in text format; write a translator "
        "(docs/extending/environment.md)"
    )


def _parts(space: "gymnasium.Space[Any]") -> int:
    if space.shape is None or len(space.shape) != 1:
        raise ConfigError(
            f"the action space {space} is not one-dimensional; write a translator, or flatten it "
            "in a wrapper (env.wrappers)"
        )
    return int(space.shape[0])


def _word(argument: str) -> str:
    """Remove the quotes from a word or number argument."""
    if not argument.startswith('"'):
        return argument
    try:
        return str(json.loads(argument))
    except ValueError:
        raise ActionError(f"{quoted(argument)} is not a valid quoted string") from None
