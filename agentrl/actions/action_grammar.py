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

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from agentrl.actions.screen_actions import (
    Action,
    Done,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.actions.tool_calls import ActionSet, in_json
from agentrl.errors import ActionError, ConfigError
from agentrl.text import did_you_mean, quoted

_NUMBER = re.compile(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", re.ASCII)
_SIGNED = re.compile(rf"-?({_NUMBER.pattern})", re.ASCII)
_OUTSIDE = ("refuse", "clamp")
KEYS = ("BACK", "HOME", "ENTER", "DEL", "MENU", "VOLUME_UP", "VOLUME_DOWN")
MAX_WAIT_S = 5.0
MAX_TEXT = 500
FORMS: Mapping[str, str] = {
    "tap": "tap(x, y)",
    "long_press": "long_press(x, y)",
    "swipe": "swipe(x1, y1, x2, y2)",
    "drag": "drag(x1, y1, x2, y2)",
    "type": 'type("text")',
    "key": "key(NAME)",
    "wait": "wait(s)",
    "done": "done()",
}
_POINTS: Mapping[str, type[Tap | LongPress]] = {"tap": Tap, "long_press": LongPress}
_PATHS: Mapping[str, type[Swipe | Drag]] = {"swipe": Swipe, "drag": Drag}


@dataclass(slots=True, kw_only=True, frozen=True)
class CoordinateFormat:
    """Converts positions in [0, 1] to numbers on another scale, and back."""

    name: str
    sides: tuple[float, float]
    """The numbers of the right and the lower edge."""
    decimals: int
    clamp: bool
    """Whether positions outside are moved to the edge."""
    centered: bool = False
    """Whether an integer means the middle of a pixel."""

    @staticmethod
    def named(name: str, size: tuple[int, int] | None, outside: str) -> "CoordinateFormat":
        """The format of that name.

        Raises:
            ConfigError: an unknown name, or `pixels` without a size.
        """
        if outside not in _OUTSIDE:
            raise ConfigError(f"outside={outside!r} must be one of {', '.join(_OUTSIDE)}")
        clamp = outside == "clamp"
        if name == "unit":
            return CoordinateFormat(name=name, sides=(1, 1), decimals=2, clamp=clamp)
        if name == "thousand":
            return CoordinateFormat(name=name, sides=(1000, 1000), decimals=0, clamp=clamp)
        if name != "pixels":
            known = ("unit", "thousand", "pixels")
            raise ConfigError(
                f"positions={name!r} must be one of {', '.join(known)}{did_you_mean(name, known)}"
            )
        if size is None or len(size) != 2 or min(size) < 1:
            raise ConfigError(f"positions=pixels needs the image size, not {size!r}")
        return CoordinateFormat(name=name, sides=size, decimals=0, clamp=clamp, centered=True)

    @staticmethod
    def number(text: str, *, signed: bool = False) -> float:
        """A plain decimal number, without exponent.

        Raises:
            ActionError: not a number.
        """
        if not (_SIGNED if signed else _NUMBER).fullmatch(text):
            raise ActionError(f"{quoted(text)} is not a number such as 0.25")
        return float(text)

    def parse(self, name: str, given: list[str], form: str, points: int) -> list[float]:
        """Parse the arguments of an action: positions in [0, 1], x and y of each point in turn.

        Raises:
            ActionError: a wrong number of arguments, or a position outside the screen.
        """
        numbers = [self.number(text, signed=self.clamp) for text in given]
        if len(numbers) != 2 * points:
            raise ActionError(f"{name} takes {2 * points} numbers, not {len(given)}: {form}")
        return [self._position(name, n, side) for n, side in self._with_sides(numbers)]

    def format(self, *positions: float) -> list[str]:
        """The text of positions in [0, 1]."""
        texts = []
        for position, side in self._with_sides(positions):
            number = position * side
            if self.centered:
                number = min(int(number), side - 1)
            texts.append(f"{number:.{self.decimals}f}")
        return texts

    def _position(self, name: str, number: float, side: float) -> float:
        last = side - 1 if self.centered else side
        if self.clamp:
            number = min(max(number, 0.0), last)
        if not 0 <= number <= last:
            raise ActionError(
                f"{name}: {number:g} is outside the screen; positions are in [0, {last:g}]"
            )
        return (number + 0.5) / side if self.centered else number / side

    def _with_sides(self, numbers: "list[float] | tuple[float, ...]") -> list[tuple[float, float]]:
        return [(number, self.sides[index % 2]) for index, number in enumerate(numbers)]


@dataclass(slots=True, kw_only=True, frozen=True)
class Grammar:
    """A closed set of actions and their text form.

    `parse` inverts `format`, up to the precision of the position format: hundredths, thousandths
    or pixels.

    Args:
        positions: `unit` writes positions in [0, 1], `thousand` as 0 to 1000, `pixels` as pixels of
            the image that the model sees, for models that were trained that way.
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
        size: width and height of that image, for `pixels`.
        actions: accepted actions, a subset of `FORMS`.
        keys: accepted by `key`.
        max_wait_s: the longest `wait`.
        max_text: the longest text that `type` accepts, in characters.
        style: `tag` or `tool`.

    Raises:
        ConfigError: an unknown position format, action or style, or `pixels` without a size.
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
        self._coordinates()
        if unknown := [name for name in self.actions if name not in FORMS]:
            raise ConfigError(f"unknown actions: {unknown}{did_you_mean(unknown[0], FORMS)}")
        self._calls()

    def parse(self, reply: str) -> Action:
        """The action in a reply.

        Raises:
            ActionError: the reply does not contain exactly one call, the call is not a valid
                action, or a position is outside the screen and `outside` is `refuse`.
        """
        call = self._calls().parse(reply)
        name, given = call.name, list(call.arguments)
        if name in _POINTS:
            return _POINTS[name](*self._coordinates().parse(name, given, FORMS[name], 1))
        if name in _PATHS:
            return _PATHS[name](*self._coordinates().parse(name, given, FORMS[name], 2))
        return self._without_position(name, given)

    def format(self, action: Action) -> str:
        """The text of an action, in its tag."""
        write = self._coordinates().format
        match action:
            case Tap(x, y):
                call = ("tap", *write(x, y))
            case LongPress(x, y):
                call = ("long_press", *write(x, y))
            case Swipe(x1, y1, x2, y2):
                call = ("swipe", *write(x1, y1, x2, y2))
            case Drag(x1, y1, x2, y2):
                call = ("drag", *write(x1, y1, x2, y2))
            case Type(text):
                call = ("type", in_json(text))
            case Key(name):
                call = ("key", name)
            case Wait(seconds):
                call = ("wait", f"{seconds:.2f}")
            case Done():
                call = ("done",)
        return _calls(tuple(FORMS), self.style).format(*call)

    def _coordinates(self) -> CoordinateFormat:
        return CoordinateFormat.named(self.positions, self.size, self.outside)

    def _calls(self) -> ActionSet:
        return _calls(self.actions, self.style)

    def _without_position(self, name: str, given: list[str]) -> Action:
        if name == "type":
            return self._type(given[0])
        if name == "key":
            return self._key(given[0])
        if name == "wait":
            return self._wait(given[0])
        return Done()

    def _type(self, argument: str) -> Type:
        text = None
        if argument.strip().startswith('"'):  # anything else is no string, and may nest deeply
            try:
                text = json.loads(argument)
            except ValueError:
                text = None
        if not isinstance(text, str):
            raise ActionError(
                f'type takes one JSON string, as in type("hello"), not {quoted(argument)}'
            )
        if len(text) > self.max_text:
            raise ActionError(f"type takes at most {self.max_text} characters, not {len(text)}")
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
            raise ActionError(
                f"{quoted(text)} contains a NUL or a lone surrogate, which cannot be typed"
            )
        return Type(text)

    def _key(self, argument: str) -> Key:
        name = argument.strip("'\"").upper()
        if name not in self.keys:
            known = ", ".join(self.keys)
            raise ActionError(f"there is no key {quoted(argument)}; keys are {known}")
        return Key(name)

    def _wait(self, argument: str) -> Wait:
        seconds = CoordinateFormat.number(argument)
        if not 0 <= seconds <= self.max_wait_s:
            raise ActionError(f"wait takes a number of seconds from 0 to {self.max_wait_s:g}")
        return Wait(seconds)


@lru_cache(maxsize=64)
def _calls(actions: tuple[str, ...], style: str) -> ActionSet:
    return ActionSet((FORMS[name] for name in actions), style)
