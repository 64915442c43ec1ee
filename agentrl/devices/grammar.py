r"""How an agent says what to do.

::

    <action>tap(0.21, 0.70)</action>
    <action>long_press(0.21, 0.70)</action>
    <action>swipe(0.50, 0.80, 0.50, 0.20)</action>
    <action>drag(0.50, 0.80, 0.50, 0.20)</action>
    <action>type("a JSON string: \"quoted\", two\nlines, \u003ctags>")</action>
    <action>key(BACK)</action>
    <action>wait(0.50)</action>
    <action>done()</action>

The grammar is closed: what is not in it never reaches a phone.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentrl.data.tags import action_in
from agentrl.devices.actions import Action, Done, Drag, Key, LongPress, Swipe, Tap, Type, Wait
from agentrl.devices.spelling import Spelling, short
from agentrl.errors import ActionError, ConfigError
from agentrl.plugins import did_you_mean

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
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(slots=True, kw_only=True, frozen=True)
class Grammar:
    """A closed set of actions and how they are spelled.

    What `format` says, `parse` reads as the same action, up to the precision of the spelling:
    hundredths, thousandths or pixels.

    Args:
        positions: `unit` says them in [0, 1], `thousand` as 0 to 1000, `pixels` as pixels of the
            picture that the model sees: for models that were trained that way.
        outside: whether a position beside the screen is refused or moved to its edge (`clamp`).
        size: width and height of that picture, for `pixels`.
        actions: those of `FORMS` that are taken.
        keys: that `key` takes.
        max_wait_s: the longest `wait`.
        max_text: the longest text that `type` takes, in characters.

    Raises:
        ConfigError: a spelling or an action that does not exist, or `pixels` without a size.
    """

    positions: Literal["unit", "thousand", "pixels"] = "unit"
    outside: Literal["refuse", "clamp"] = "refuse"
    size: tuple[int, int] | None = None
    actions: tuple[str, ...] = tuple(FORMS)
    keys: tuple[str, ...] = KEYS
    max_wait_s: float = MAX_WAIT_S
    max_text: int = MAX_TEXT

    def __post_init__(self) -> None:
        self._spelling()
        if unknown := [name for name in self.actions if name not in FORMS]:
            raise ConfigError(f"no actions: {unknown}{did_you_mean(unknown[0], FORMS)}")

    def parse(self, reply: str) -> Action:
        """The action in a reply.

        Raises:
            ActionError: not exactly one `<action>` tag stands in it, or what is in the tag is no
                action, or a position is outside the screen and not clamped.
        """
        said = action_in(reply)
        call = _CALL.fullmatch(said)
        if call is None:
            forms = ", ".join(FORMS[name] for name in self.actions)
            raise ActionError(f"{short(said)} is no action; they read {forms}")
        name, arguments = call.groups()
        if name not in self.actions:
            known = did_you_mean(name, self.actions)
            raise ActionError(f"there is no action {name[:40]!r}{known}")
        if name == "type":
            return self._type(arguments)
        given = [argument.strip() for argument in arguments.split(",")]
        if name in _POINTS:
            return _POINTS[name](*self._spelling().read(name, given, FORMS[name], 1))
        if name in _PATHS:
            return _PATHS[name](*self._spelling().read(name, given, FORMS[name], 2))
        return self._other(name, given)

    def format(self, action: Action) -> str:
        """How an agent says an action, in its tag."""
        say = self._spelling().say
        match action:
            case Tap(x, y):
                call = f"tap({say(x, y)})"
            case LongPress(x, y):
                call = f"long_press({say(x, y)})"
            case Swipe(x1, y1, x2, y2):
                call = f"swipe({say(x1, y1, x2, y2)})"
            case Drag(x1, y1, x2, y2):
                call = f"drag({say(x1, y1, x2, y2)})"
            case Type(text):
                # No `<` as it is: a text may hold the very tag that ends the action.
                quoted = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
                call = f"type({quoted})"
            case Key(name):
                call = f"key({name})"
            case Wait(seconds):
                call = f"wait({seconds:.2f})"
            case Done():
                call = "done()"
        return f"<action>{call}</action>"

    def _spelling(self) -> Spelling:
        return Spelling.named(self.positions, self.size, self.outside)

    def _other(self, name: str, given: list[str]) -> Action:
        if name == "key":
            return self._key(given)
        if name == "wait":
            return self._wait(given)
        if given != [""]:
            raise ActionError(f"{name} takes nothing: {FORMS[name]}")
        return Done()

    def _type(self, said: str) -> Type:
        text = None
        if said.strip().startswith('"'):  # all else is no string, and may be nested without end
            try:
                text = json.loads(said)
            except ValueError:
                text = None
        if not isinstance(text, str):
            raise ActionError(f'type takes one JSON string, as in type("hello"), not {short(said)}')
        if len(text) > self.max_text:
            raise ActionError(f"type takes at most {self.max_text} characters, not {len(text)}")
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
            raise ActionError(f"{short(text)} holds a NUL or half a character: nobody types that")
        return Type(text)

    def _key(self, given: list[str]) -> Key:
        name = given[0].strip("'\"").upper()
        if len(given) != 1 or name not in self.keys:
            known = ", ".join(self.keys)
            raise ActionError(f"there is no key {short(','.join(given))}; keys are {known}")
        return Key(name)

    def _wait(self, given: list[str]) -> Wait:
        seconds = Spelling.number(given[0])
        if len(given) != 1 or not 0 <= seconds <= self.max_wait_s:
            raise ActionError(f"wait takes one number of seconds, from 0 to {self.max_wait_s:g}")
        return Wait(seconds)


_PLAIN = Grammar()


def parse_action(reply: str) -> Action:
    """The action in a reply, in the plain grammar: `Grammar().parse`.

    Raises:
        ActionError: there is none, or not exactly one.
    """
    return _PLAIN.parse(reply)


def format_action(action: Action) -> str:
    """How an agent says an action in the plain grammar, with two decimals."""
    return _PLAIN.format(action)
