"""Actions that an agent can perform on a screen. Dialects define how they are written.

Positions are fractions of the screen in [0, 1], from its top left corner.
"""

from dataclasses import dataclass
from typing import ClassVar

Point = tuple[float, float]


@dataclass(slots=True, frozen=True)
class PointTouch:
    """A touch that stays at (x, y)."""

    duration_s: ClassVar[float] = 0.0
    """Default duration; 0 means as short as the phone's own taps."""
    x: float
    y: float

    @property
    def points(self) -> tuple[Point, ...]:
        """Start of the touch."""
        return ((self.x, self.y),)


@dataclass(slots=True, frozen=True)
class PathTouch:
    """A touch that moves from (x1, y1) to (x2, y2)."""

    duration_s: ClassVar[float] = 0.0
    """Default duration."""
    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def points(self) -> tuple[Point, ...]:
        """Start and end of the touch."""
        return (self.x1, self.y1), (self.x2, self.y2)


@dataclass(slots=True, frozen=True)
class Tap(PointTouch):
    """A short touch at (x, y)."""


@dataclass(slots=True, frozen=True)
class LongPress(PointTouch):
    """A finger held at (x, y)."""

    duration_s: ClassVar[float] = 0.8


@dataclass(slots=True, frozen=True)
class Swipe(PathTouch):
    """A swipe from (x1, y1) to (x2, y2)."""

    duration_s: ClassVar[float] = 0.3


@dataclass(slots=True, frozen=True)
class Drag(PathTouch):
    """Picks up the object at (x1, y1) and drops it at (x2, y2)."""

    duration_s: ClassVar[float] = 0.8


@dataclass(slots=True, frozen=True)
class Type:
    """Text typed into the focused field."""

    text: str


@dataclass(slots=True, frozen=True)
class Key:
    """A key, such as `BACK`."""

    name: str


@dataclass(slots=True, frozen=True)
class Wait:
    """A pause; the phone is not touched."""

    seconds: float


@dataclass(slots=True, frozen=True)
class Done:
    """The end of the task, as declared by the agent; the phone is not touched."""

    status: str | None = None
    """Outcome reported by the agent, such as `success`; None if it reports no outcome."""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether the agent reports that the task failed or is infeasible."""
        return self.status in ("failure", "fail", "infeasible")


Action = Tap | LongPress | Swipe | Drag | Type | Key | Wait | Done
"""Actions that every device can perform."""


@dataclass(slots=True, frozen=True)
class DoubleTap(PointTouch):
    """Two short touches at (x, y)."""


@dataclass(slots=True, frozen=True)
class OpenApp:
    """An app to open, by the agent's name for it."""

    name: str


@dataclass(slots=True, frozen=True)
class AnswerUser:
    """The agent's answer to the user's question."""

    text: str


@dataclass(slots=True, frozen=True)
class AskUser:
    """A question to the user, or a request for the user to take over."""

    text: str


ScreenAction = Action | DoubleTap | OpenApp | AnswerUser | AskUser
"""All actions of dialects, performed by a device or by an environment."""
EXAMPLES: tuple[ScreenAction, ...] = (
    Tap(0.25, 0.75),
    LongPress(0.5, 0.1),
    DoubleTap(0.9, 0.4),
    Swipe(0.5, 0.75, 0.5, 0.25),
    Drag(0.2, 0.5, 0.8, 0.5),
    Type('it\'s "quoted", 5 < 6\nand \\ more: 漢'),
    Key("BACK"),
    OpenApp("Clock"),
    AnswerUser("42"),
    AskUser("Which one?"),
    Wait(2.0),
    Done(),
)
"""One action of each type."""


def touches_nothing(action: Action) -> bool:
    """Return whether an action touches nothing, so that there is no effect to wait for."""
    return isinstance(action, Wait | Done) or action == Type("")
