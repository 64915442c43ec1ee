r"""The grammar of actions written as calls, in one of two styles.

::

    tag   <action>tap(0.21, 0.70)</action>     <action>up</action>
    tool  <tool_call>{"name": "tap", "arguments": {"x": 0.21, "y": 0.70}}</tool_call>
          <tool_call>{"name": "up", "arguments": {}}</tool_call>

The instructions show the model each action's signature: `tap(x, y)`, `chop()`, or a bare name such
as `up`. The set is closed: calls of other actions or with other arguments are rejected.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args, overload

from agentrl.actions.reply_values import json_object
from agentrl.errors import ActionError, ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean
from agentrl.text.reply_tags import action_tag_content, tag_content

Style = Literal["tag", "tool"]
STYLES: tuple[Style, ...] = get_args(Style)
TAGS: Mapping[str, str] = {"tag": "action", "tool": "tool_call"}
"""The tag around an action, by style."""
# A whole number of at most 19 digits.
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL | re.ASCII)
# Possessive, so that an unclosed quote does not cause backtracking.
_ARGUMENT = re.compile(r'((?:"(?:[^"\\]|\\.)*+"|[^",])*+),', re.DOTALL)


@dataclass(slots=True, kw_only=True, frozen=True)
class ActionCall:
    """An action parsed from a reply."""

    name: str
    arguments: tuple[str, ...] = ()
    """JSON values or bare words as text: `0.21`, `"text"`, `BACK`."""


class Numbers(Sequence[str]):
    """`count` numbers from `start` as text, used as names of unnamed choices.

    The numbers are never materialized, because there may be 2**62 of them.
    """

    def __init__(self, count: int, start: int = 0) -> None:
        self._range = range(start, start + count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        chosen = self._range[at]
        return str(chosen) if isinstance(chosen, int) else tuple(map(str, chosen))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(_NUMBER.fullmatch(name)) and int(name) in self._range

    def index(self, name: str, *bounds: int) -> int:
        """Return the index of a number given as text."""
        if name not in self:
            raise ValueError(f"{name!r} is not one of {self}")
        return self._range.index(int(name))

    def __str__(self) -> str:
        return f"{self._range.start} to {self._range.stop - 1}"


class _NumberForms(Mapping[str, str]):
    """Signatures of actions that are numbers; each number is its own name."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def __getitem__(self, name: str) -> str:
        if name not in self._numbers:
            raise KeyError(name)
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __str__(self) -> str:
        return str(self._numbers)


class ActionSet:
    """A closed set of actions; `parse` is the inverse of `format`.

    Args:
        forms: signatures with unique names, such as `tap(x, y)`, `chop()` or `up`.
        style: `tag` or `tool`.

    Raises:
        ConfigError: there are no signatures, two have the same name, or the style is unknown.
    """

    def __init__(self, forms: Iterable[str], style: str = "tag") -> None:
        self.style = checked_style(style)
        self._forms: Mapping[str, str]
        # Never list numbers, because there may be 2**62 of them.
        if isinstance(forms, Numbers):
            self._forms = _NumberForms(forms)
            return
        given = list(forms)
        calls = ((_CALL.fullmatch(form), form) for form in given)
        self._forms = {call[1] if call else form.strip(): form for call, form in calls}
        if not given or len(self._forms) != len(given):
            raise ConfigError(f"there must be at least one action, with unique names, got {given}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all actions, in the given order."""
        return tuple(self._forms)

    def parse(self, reply: str) -> ActionCall:
        """Parse the only action of a reply.

        Raises:
            ActionError: there is no action or more than one, it is not in the set, or its arguments
                do not match its signature.
        """
        call = self._tool_call(reply) if self.style == "tool" else self._tagged(reply)
        form = self._forms[call.name]
        expected, given = len(_parameters(form)), len(call.arguments)
        if given != expected:
            plural = "" if expected == 1 else "s"
            raise ActionError(f"{form} takes {expected or 'no'} argument{plural}, not {given}")
        return call

    def format(self, name: str, *arguments: str) -> str:
        """Write an action as a model would.

        Args:
            name: name of the action.
            arguments: arguments in the order of the signature, each as JSON or a bare word.
        """
        form = self._forms[name]
        if self.style == "tool":
            given = zip(_parameters(form), map(_as_json, arguments), strict=True)
            listed = ", ".join(f"{json.dumps(parameter)}: {value}" for parameter, value in given)
            return f'<tool_call>{{"name": {in_json(name)}, "arguments": {{{listed}}}}}</tool_call>'
        call = name if form == name else f"{name}({', '.join(arguments)})"
        return f"<action>{call}</action>"

    def describe(self) -> str:
        """List all actions in this style, for instructions: `<action>up</action>, <action>...`."""
        return ", ".join(
            self.format(name, *_parameters(form)) for name, form in self._forms.items()
        )

    def _tagged(self, reply: str) -> ActionCall:
        text = action_tag_content(reply)
        if text.strip() in self._forms:
            return ActionCall(name=text.strip())
        match = _CALL.fullmatch(text)
        if match is None:
            raise ActionError(f"{quoted(text)} is not an action; {self._known(text)}")
        name, inside = match.groups()
        if name not in self._forms:
            raise ActionError(f"unknown action {quoted(name)}; {self._known(name)}")
        return ActionCall(name=name, arguments=_split(inside))

    def _tool_call(self, reply: str) -> ActionCall:
        text = tag_content(reply, "tool_call")
        call = json_object(text, "a JSON object with a name")
        if not isinstance(name := call.get("name"), str):
            raise ActionError(f"{quoted(text.strip())} is not a JSON object with a name")
        if name not in self._forms:
            raise ActionError(f"unknown action {quoted(name)}; {self._known(name)}")
        given = call.get("arguments", {})
        # Some models write the arguments as a JSON string.
        if isinstance(given, str):
            try:
                given = json.loads(given or "{}")
            except (ValueError, RecursionError):
                given = None
        expected = _parameters(self._forms[name])
        if not isinstance(given, Mapping) or set(given) != set(expected):
            raise ActionError(f"{name} takes the arguments {list(expected)}, not {quoted(given)}")
        for parameter in expected:
            value = given[parameter]
            if not isinstance(value, int | float | str) or isinstance(value, bool):
                raise ActionError(
                    f"{name}: {parameter} is {quoted(value)}, neither a number nor text"
                )
        arguments = (json.dumps(given[parameter], ensure_ascii=False) for parameter in expected)
        return ActionCall(name=name, arguments=tuple(arguments))

    def _known(self, text: str) -> str:
        if isinstance(self._forms, _NumberForms):
            return f"the actions are the numbers from {self._forms}"
        return f"the actions are {', '.join(self._forms.values())}{did_you_mean(text, self._forms)}"


def checked_style(style: str) -> Style:
    """Return a style, or raise `ConfigError` if it is unknown."""
    for known in STYLES:
        if style == known:
            return known
    raise ConfigError(
        f"style must be one of {', '.join(STYLES)}, got {style!r}{did_you_mean(style, STYLES)}"
    )


def in_json(text: str) -> str:
    """Encode text as a JSON string without `<`, so that it cannot contain the closing tag."""
    return without_tags(json.dumps(text, ensure_ascii=False))


def without_tags(json_text: str) -> str:
    """Escape `<` in JSON, where it can occur only in strings."""
    return json_text.replace("<", "\\u003c")


def _parameters(form: str) -> tuple[str, ...]:
    """Return the parameters of a signature in lower case: `key(NAME)` has `name`."""
    found = _CALL.fullmatch(form)
    return tuple(p.strip('"').lower() for p in _split(found[2])) if found else ()


def _split(inside: str) -> tuple[str, ...]:
    """Split arguments at commas outside quotes."""
    if not inside.strip():
        return ()
    arguments, start, text = [], 0, f"{inside},"
    while start < len(text):
        match = _ARGUMENT.match(text, start)
        if match is None:
            raise ActionError(f"the arguments {quoted(inside)} have an unclosed quote")
        arguments.append(match[1].strip())
        start = match.end()
    return tuple(arguments)


def _as_json(argument: str) -> str:
    """Convert an argument to JSON: bare words, including `true` and `NaN`, become strings."""
    # NaN and Infinity are bare words here as well.
    try:
        value = json.loads(argument, parse_constant=lambda word: None)
    except ValueError:
        return in_json(argument)
    is_value = isinstance(value, int | float | str) and not isinstance(value, bool)
    return argument if is_value else in_json(argument)
