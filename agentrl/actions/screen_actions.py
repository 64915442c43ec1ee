"""The actions that an agent can perform on a screen; `agentrl.actions.action_grammar` spells them.

Positions are in [0, 1] of the screen, from its top left corner.
"""

from dataclasses import dataclass

LONG_PRESS_S, SWIPE_S, DRAG_S = 0.8, 0.3, 0.8
"""Default durations."""


@dataclass(slots=True, frozen=True)
class Tap:
    """A short touch at (x, y)."""

    x: float
    y: float


@dataclass(slots=True, frozen=True)
class LongPress:
    """A finger held at (x, y)."""

    x: float
    y: float


@dataclass(slots=True, frozen=True)
class Swipe:
    """A swipe from (x1, y1) to (x2, y2)."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(slots=True, frozen=True)
class Drag:
    """Picks up what is at (x1, y1) and drops it at (x2, y2)."""

    x1: float
    y1: float
    x2: float
    y2: float


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
    """The agent considers its task finished; the phone is not touched."""


Action = Tap | LongPress | Swipe | Drag | Type | Key | Wait | Done


def touches_nothing(action: Action) -> bool:
    """Whether an action touches nothing, so that there is no effect to wait for."""
    return isinstance(action, Wait | Done) or action == Type("")
