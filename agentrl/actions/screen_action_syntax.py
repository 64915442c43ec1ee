r"""The text form of actions: how a model writes them and how they are parsed.

::

    <action>tap(0.21, 0.70)</action>
    <action>long_press(0.21, 0.70)</action>
    <action>swipe(0.50, 0.80, 0.50, 0.20)</action>
    <action>drag(0.50, 0.80, 0.50, 0.20)</action>
    <action>type("a JSON string: \"quoted\", two\nlines, \u003ctags>")</action>
    <action>key(BACK)</action>
    <action>wait(0.50)</action>
    <action>done()</action>

or, in the style `tool`::

    <tool_call>{"name": "tap", "arguments": {"x": 0.21, "y": 0.70}}</tool_call>

The grammar is closed: anything else never reaches a phone.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, assert_never

from agentrl.actions.action_calls import ActionSet, in_json
from agentrl.actions.reply_values import KEYS, MAX_TEXT, OUTSIDE, CoordinateScale, typed_text
from agentrl.actions.screen_actions import (
    Action,
    Done,
    Drag,
    Key,
    LongPress,
    PathTouch,
    PointTouch,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.errors import ActionError, ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean

_NUMBER = re.compile(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", re.ASCII)
_SIGNED = re.compile(rf"-?({_NUMBER.pattern})", re.ASCII)
_POSITIONS = ("unit", "thousand", "pixels")
MAX_WAIT_S = 5.0
ACTION_FORMS: Mapping[type[Any], str] = {
    Tap: "tap(x, y)",
    LongPress: "long_press(x, y)",
    Swipe: "swipe(x1, y1, x2, y2)",
    Drag: "drag(x1, y1, x2, y2)",
    Type: 'type("text")',
    Key: "key(NAME)",
    Wait: "wait(s)",
    Done: "done()",
}
"""Call signatures by type of action."""
_KINDS = {form.partition("(")[0]: kind for kind, form in ACTION_FORMS.items()}
FORMS: Mapping[str, str] = {name: ACTION_FORMS[kind] for name, kind in _KINDS.items()}
"""Call signatures by name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ActionSyntax:
    """A closed set of actions and their text form.

    `parse` inverts `format`, up to the precision of the position format: hundredths, thousandths
    or pixels.

    Args:
        positions: `unit` writes positions in [0, 1], `thousand` from 0 to 1000, and `pixels` in
            pixels of the image that the model sees, for models trained that way.
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
        size: width and height of the image, for `pixels`.
        actions: accepted actions, a subset of `FORMS`.
        keys: names that `key` accepts.
        max_wait_s: longest `wait` in seconds.
        max_text: maximum number of characters that `type` accepts.
        style: `tag` or `tool`.

    Raises:
        ConfigError: a position format, action or style is unknown, or `pixels` has no size.
    """

    positions: Literal["unit", "thousand", "pixels"] = "unit"
    outside: Literal["refuse", "clamp"] = "refuse"
    size: tuple[int, int] | None = None
    actions: tuple[str, ...] = tuple(FORMS)
    keys: tuple[str, ...] = KEYS
    max_wait_s: float = MAX_WAIT_S
    max_text: int = MAX_TEXT
    style: str = "tag"

    def __post_init__(self) -> None:
        if self.outside not in OUTSIDE:
            raise ConfigError(f"outside must be one of {', '.join(OUTSIDE)}, got {self.outside!r}")
        if self.positions not in _POSITIONS:
            raise ConfigError(
                f"positions={self.positions!r} must be one of {', '.join(_POSITIONS)}"
                f"{did_you_mean(self.positions, _POSITIONS)}"
            )
        if self.positions == "pixels" and (
            self.size is None or len(self.size) != 2 or min(self.size) < 1
        ):
            raise ConfigError(f"positions=pixels needs the image's size, got {self.size!r}")
        if unknown := [name for name in self.actions if name not in FORMS]:
            raise ConfigError(f"unknown actions: {unknown}{did_you_mean(unknown[0], FORMS)}")
        _calls(self.actions, self.style)

    def parse(self, reply: str) -> Action:
        """Parse the action in a reply.

        Raises:
            ActionError: the reply does not contain exactly one call, the call is not a valid
                action, or a position is outside the screen and `outside` is `refuse`.
        """
        call = _calls(self.actions, self.style).parse(reply)
        name, given = call.name, list(call.arguments)
        if issubclass(_KINDS[name], PointTouch | PathTouch):
            numbers = [_number(text, signed=self.outside == "clamp") for text in given]
            points = zip(numbers[::2], numbers[1::2], strict=True)
            places = [place for point in points for place in self._scale().position(point, name)]
            touch: Action = _KINDS[name](*places)
            return touch
        match name, given:
            case "type", [argument]:
                # Parse only text that starts with a quote, because other JSON may be deeply nested.
                text = None
                if argument.strip().startswith('"'):
                    with contextlib.suppress(ValueError):
                        text = json.loads(argument)
                if not isinstance(text, str):
                    raise ActionError(
                        f'type takes one JSON string, such as type("hello"), not {quoted(argument)}'
                    )
                return Type(typed_text(text, "type", self.max_text))
            case "key", [argument]:
                key = argument.strip("'\"").upper()
                if key not in self.keys:
                    known = ", ".join(self.keys)
                    raise ActionError(f"unknown key {quoted(argument)}; keys are {known}")
                return Key(key)
            case "wait", [argument]:
                seconds = _number(argument)
                if not 0 <= seconds <= self.max_wait_s:
                    longest = f"{self.max_wait_s:g}"
                    raise ActionError(f"wait takes a number of seconds from 0 to {longest}")
                return Wait(seconds)
        return Done()

    def format(self, action: Action) -> str:
        """Write an action in its tag."""
        name = ACTION_FORMS[type(action)].partition("(")[0]
        match action:
            case PointTouch() | PathTouch():
                arguments = [text for point in action.points for text in self._written(*point)]
            case Type(text):
                arguments = [in_json(text)]
            case Key(key):
                arguments = [key]
            case Wait(seconds):
                arguments = [f"{seconds:.2f}"]
            case Done():
                arguments = []
            case _:
                assert_never(action)
        return _calls(tuple(FORMS), self.style).format(name, *arguments)

    def _written(self, x: float, y: float) -> list[str]:
        if self.positions == "unit":
            return [f"{x:.2f}", f"{y:.2f}"]
        return [str(number) for number in self._scale().numbers(x, y)]

    def _scale(self) -> CoordinateScale:
        clamp = self.outside == "clamp"
        if self.positions == "pixels":
            assert self.size is not None, "checked when the syntax was created"
            return CoordinateScale(sides=self.size, pixels=True, clamp=clamp)
        side = 1 if self.positions == "unit" else 1000
        return CoordinateScale(sides=(side, side), clamp=clamp)


def _number(text: str, *, signed: bool = False) -> float:
    """Parse a plain decimal number without an exponent."""
    if not (_SIGNED if signed else _NUMBER).fullmatch(text):
        raise ActionError(f"{quoted(text)} is not a number such as 0.25")
    return float(text)


@lru_cache(maxsize=64)
def _calls(actions: tuple[str, ...], style: str) -> ActionSet:
    return ActionSet((FORMS[name] for name in actions), style)
