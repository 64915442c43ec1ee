r"""Actions as calls, said in one of two styles.

::

    tag   <action>tap(0.21, 0.70)</action>     <action>up</action>
    tool  <tool_call>{"name": "tap", "arguments": {"x": 0.21, "y": 0.70}}</tool_call>
          <tool_call>{"name": "up", "arguments": {}}</tool_call>

An action's form is how it is told to the model: `tap(x, y)`, `chop()` or a bare name such as `up`.
The forms are a closed set: a call of anything else, or with other arguments, is no action.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agentrl.actions.tags import action_in, between
from agentrl.errors import ActionError, ConfigError
from agentrl.text import did_you_mean, quoted

Style = Literal["tag", "tool"]
STYLES: tuple[Style, ...] = get_args(Style)
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL | re.ASCII)
_ARGUMENT = re.compile(r'((?:"(?:[^"\\]|\\.)*+"|[^",])*+),', re.DOTALL)


@dataclass(slots=True, kw_only=True, frozen=True)
class Call:
    """One action as it was said."""

    name: str
    arguments: tuple[str, ...] = ()
    """As JSON writes them, or as bare words: `0.21`, `"text"`, `BACK`."""


class Calls:
    """A closed set of actions; what `say` writes, `read` reads.

    Args:
        forms: such as `tap(x, y)`, `chop()` or `up`; their names are those of the actions.
        style: `tag` or `tool`.

    Raises:
        ConfigError: no forms, two of one name, or a style that does not exist.
    """

    def __init__(self, forms: Iterable[str], style: str = "tag") -> None:
        if style not in STYLES:
            raise ConfigError(
                f"style={style!r} must be one of {', '.join(STYLES)}{did_you_mean(style, STYLES)}"
            )
        given = list(forms)
        self._forms = {_name(form): form for form in given}
        if not given or len(self._forms) != len(given):
            raise ConfigError(f"the actions are {given}: must be some, each of another name")
        self.style: Style = "tool" if style == "tool" else "tag"

    @property
    def names(self) -> tuple[str, ...]:
        """Of all actions, in the order of their forms."""
        return tuple(self._forms)

    def read(self, reply: str) -> Call:
        """The one action in a reply.

        Raises:
            ActionError: it holds none or several, one that is not in the set, or with other
                arguments than its form has.
        """
        call = self._tool_call(reply) if self.style == "tool" else self._tagged(reply)
        form = self._forms[call.name]
        wanted, given = len(_parameters(form)), len(call.arguments)
        if given != wanted:
            plural = "" if wanted == 1 else "s"
            raise ActionError(f"{form} takes {wanted or 'no'} argument{plural}, not {given}")
        return call

    def say(self, name: str, *arguments: str) -> str:
        """How a model says an action.

        Args:
            name: of one of the actions.
            arguments: in the order of its form, each as JSON or a bare word.
        """
        form = self._forms[name]
        if self.style == "tool":
            given = zip(_parameters(form), map(_as_json, arguments), strict=True)
            listed = ", ".join(f"{json.dumps(parameter)}: {value}" for parameter, value in given)
            return f'<tool_call>{{"name": {in_json(name)}, "arguments": {{{listed}}}}}</tool_call>'
        said = name if form == name else f"{name}({', '.join(arguments)})"
        return f"<action>{said}</action>"

    def told(self) -> str:
        """All forms in this style, for instructions: `<action>up</action>, <action>...`."""
        return ", ".join(
            self.say(name, *(p for p in _parameters(form))) for name, form in self._forms.items()
        )

    def _tagged(self, reply: str) -> Call:
        said = action_in(reply)
        if said.strip() in self._forms:
            return Call(name=said.strip())
        found = _CALL.fullmatch(said)
        if found is None:
            raise ActionError(f"{quoted(said)} is no action; {self._known(said)}")
        name, inside = found.groups()
        if name not in self._forms:
            raise ActionError(f"there is no action {quoted(name)}; {self._known(name)}")
        return Call(name=name, arguments=_split(inside))

    def _tool_call(self, reply: str) -> Call:
        said = between(reply, "tool_call")
        try:
            call = json.loads(said)
        except (ValueError, RecursionError):
            raise ActionError(f"{quoted(said)} is no JSON object with a name") from None
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise ActionError(f"{quoted(said)} is no JSON object with a name")
        name = call["name"]
        if name not in self._forms:
            raise ActionError(f"there is no action {quoted(name)}; {self._known(name)}")
        return Call(name=name, arguments=self._values(name, call.get("arguments", {})))

    def _values(self, name: str, given: Any) -> tuple[str, ...]:
        """The arguments in the order of the form, each as JSON."""
        if isinstance(given, str):  # as some models were taught: JSON within JSON
            try:
                given = json.loads(given or "{}")
            except (ValueError, RecursionError):
                given = None
        form = self._forms[name]
        wanted = _parameters(form)
        if not isinstance(given, Mapping) or set(given) != set(wanted):
            raise ActionError(f"{name} takes the arguments {list(wanted)}, not {quoted(given)}")
        if odd := [
            p
            for p in wanted
            if not isinstance(given[p], int | float | str) or isinstance(given[p], bool)
        ]:
            raise ActionError(
                f"{name}: {odd[0]} is {quoted(given[odd[0]])}, neither a number nor text"
            )
        return tuple(json.dumps(given[parameter], ensure_ascii=False) for parameter in wanted)

    def _known(self, said: str) -> str:
        return f"there are {', '.join(self._forms.values())}{did_you_mean(said, self._forms)}"


def in_json(text: str) -> str:
    """A JSON string that cannot hold the tag that ends it."""
    return json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")


def _name(form: str) -> str:
    found = _CALL.fullmatch(form)
    return found[1] if found else form.strip()


def _parameters(form: str) -> tuple[str, ...]:
    """The names between a form's parentheses, however it spells them: `key(NAME)` has `name`."""
    found = _CALL.fullmatch(form)
    return tuple(p.strip('"').lower() for p in _split(found[2])) if found else ()


def _split(inside: str) -> tuple[str, ...]:
    """Arguments between parentheses; commas within quotes part nothing."""
    if not inside.strip():
        return ()
    arguments, place, text = [], 0, f"{inside},"
    while place < len(text):
        found = _ARGUMENT.match(text, place)
        if found is None:
            raise ActionError(f"{quoted(inside)} are no arguments: a quote is not closed")
        arguments.append(found[1].strip())
        place = found.end()
    return tuple(arguments)


def _as_json(argument: str) -> str:
    """An argument as JSON: a bare word becomes a string, `true` and `NaN` as well."""
    try:
        value = json.loads(argument, parse_constant=lambda word: None)
    except ValueError:
        return in_json(argument)
    is_value = isinstance(value, int | float | str) and not isinstance(value, bool)
    return argument if is_value else in_json(argument)
