"""Dialects of verbs with named arguments, defined by a table of verbs.

A verb's arguments follow from its action: a touch takes its points, typing or opening an app takes
one string, and finishing takes an outcome. Subclasses override methods where they differ.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, assert_never

from agentrl.actions import reply_values
from agentrl.actions.dialect import ActionTypes, Dialect, Screen
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
    AskUser,
    Done,
    Key,
    OpenApp,
    PathTouch,
    Point,
    PointTouch,
    ScreenAction,
    Type,
    Wait,
)
from agentrl.errors import ActionError


@dataclass(slots=True, frozen=True)
class Verb:
    """A dialect's word for an action."""

    does: type[Any] | ScreenAction
    """The verb's action: a type of action, or a fixed action such as `Key("BACK")`."""
    takes: tuple[str, ...] = ()
    """Names of the verb's arguments; points come first."""
    description: str = ""
    """Text in the prompt; empty for a verb that is understood but never written."""
    may_lack: tuple[str, ...] = ()
    """Names of optional arguments, a subset of `takes`."""

    @property
    def kind(self) -> type[Any]:
        """Type of the verb's action."""
        return self.does if isinstance(self.does, type) else type(self.does)


class VerbDialect(Dialect):
    """A dialect whose actions are defined by a table of verbs."""

    verbs: ClassVar[Mapping[str, Verb]]
    """Verbs by name. If several verbs express the same action, the last is used for writing."""
    statuses: ClassVar[tuple[str, str] | None] = None
    """Words for success and failure; None for a dialect that finishes with a message."""
    wait_s: ClassVar[float] = 1.0
    """Pause of a wait verb that has no time argument."""

    def __init_subclass__(cls) -> None:
        # A subclass that changes only prompts or coordinates keeps its base's actions.
        if "verbs" in cls.__dict__:
            described = (verb.kind for verb in cls.verbs.values() if verb.description)
            cls.says = tuple(dict.fromkeys(described))

    @abstractmethod
    def scale(self, screen: Screen) -> CoordinateScale:
        """Return the scale of the numbers that represent positions on a screen."""

    def label(self, name: str) -> str:
        """Return the name of a verb for messages."""
        return name

    def read(self, name: str, given: Mapping[str, Any], screen: Screen) -> ScreenAction:
        """Convert a verb with its arguments to an action."""
        verb, label = self.verbs[name], self.label(name)
        reply_values.check_keys(label, given, *self.keys(name, given))
        # The verb has a fixed action, such as a particular key.
        if not isinstance(verb.does, type):
            return verb.does
        if verb.kind is Wait:
            return Wait(self.seconds(name, given))
        if verb.kind is Done:
            if self.statuses is None:
                return Done(message=self.text(name, given))
            (key,) = verb.takes
            return Done(status=reply_values.one_of(given[key], f"{label}: {key}", self.statuses))
        if issubclass(verb.kind, PointTouch | PathTouch):
            values: Iterable[Any] = chain(*self.points(name, given, screen))
        else:
            values = (self.text(name, given),)
        action: ScreenAction = verb.does(*values)
        return action

    def keys(self, name: str, given: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
        """Return the required and the optional arguments of a verb."""
        verb = self.verbs[name]
        return [key for key in verb.takes if key not in verb.may_lack], verb.may_lack

    def points(self, name: str, given: Mapping[str, Any], screen: Screen) -> list[Point]:
        """Read the points of a touch from its arguments."""
        verb, label = self.verbs[name], self.label(name)
        keys = verb.takes[: 1 if issubclass(verb.kind, PointTouch) else 2]
        scale = self.scale(screen)
        return [scale.position(self.point(given[key], label, key), label) for key in keys]

    def point(self, value: Any, label: str, key: str) -> Point:
        """Read the numbers of a point from an argument."""
        return reply_values.point(value, f"{label}: {key}")

    def text(self, name: str, given: Mapping[str, Any]) -> str:
        """Read the text argument of a verb that takes one."""
        (key,) = self.verbs[name].takes
        return reply_values.typed_text(given[key], f"{self.label(name)}: {key}")

    def seconds(self, name: str, given: Mapping[str, Any]) -> float:
        """Read the pause that a verb requests."""
        time = given.get("time", self.wait_s)
        return reply_values.seconds(time, f"{self.label(name)}: time")

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        return self.framed(*self.written(action, screen), thought)

    def written(self, action: ScreenAction, screen: Screen) -> tuple[str, dict[str, Any]]:
        """Return the verb for an action, and its arguments."""
        # A verb for a fixed action, such as a particular key, takes precedence over a type's verb.
        names = {verb.does: name for name, verb in self.verbs.items() if verb.description}
        name = names.get(action) or names.get(type(action))
        if name is None:
            raise ActionError(f"{type(self).__name__} cannot express {action}")
        takes = self.verbs[name].takes
        match action:
            case PointTouch() | PathTouch():
                points = (self.written_point(*point, screen) for point in action.points)
                return name, dict(zip(takes, points, strict=False))
            case Type(text) | OpenApp(text) | AnswerUser(text) | AskUser(text):
                return name, {takes[0]: text}
            case Done(_, message):
                ending = message if self.statuses is None else self.statuses[action.failed]
                return name, {takes[0]: ending}
            # These have no arguments unless a subclass adds some.
            case Key() | Wait():
                return name, {}
            case _:
                assert_never(action)

    def written_point(self, x: float, y: float, screen: Screen) -> Any:
        """Write a point as an argument."""
        return self.scale(screen).numbers(x, y)

    @abstractmethod
    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        """Write the whole reply: the call and the text before it."""

    def accepted(self, accepts: ActionTypes) -> dict[str, Verb]:
        """Return the described verbs whose actions are accepted."""
        return {
            name: verb
            for name, verb in self.verbs.items()
            if verb.description and verb.kind in accepts
        }
