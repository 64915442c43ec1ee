"""What an agent can do on a screen. How it says so stands in `agentrl.actions.action_grammar`.

Positions are in [0, 1] of the screen, from its top left corner.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.devices.device import Device

LONG_PRESS_S, SWIPE_S, DRAG_S = 0.8, 0.3, 0.8
"""How long these take where nobody says how long."""


@dataclass(slots=True, frozen=True)
class Tap:
    """A short touch at (x, y)."""

    x: float
    y: float


@dataclass(slots=True, frozen=True)
class LongPress:
    """A finger that rests at (x, y)."""

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
    """What is at (x1, y1) is held, moved to (x2, y2) and let go."""

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
    """Let some seconds pass."""

    seconds: float


@dataclass(slots=True, frozen=True)
class Done:
    """The agent is through with its task; nothing is done to the phone."""


Action = Tap | LongPress | Swipe | Drag | Type | Key | Wait | Done


def does_nothing(action: Action) -> bool:
    """Whether the phone is left as it is: nothing is touched, and no effect is waited for."""
    return isinstance(action, Wait | Done) or action == Type("")


def perform(device: "Device", action: Action) -> None:
    """Do it, without waiting for what comes of it.

    Raises:
        DeviceError: the phone failed.
    """
    match action:
        case Tap(x, y):
            device.tap(x, y)
        case LongPress(x, y):
            device.long_press(x, y)
        case Swipe(x1, y1, x2, y2):
            device.swipe(x1, y1, x2, y2)
        case Drag(x1, y1, x2, y2):
            device.drag(x1, y1, x2, y2)
        case Type(text):
            device.text(text)
        case Key(name):
            device.key(name)
        case Wait(seconds):
            time.sleep(seconds)
        case Done():
            pass
