"""What an agent can do on a screen, and how it says so.

::

    <action>tap(0.21, 0.70)</action>
    <action>swipe(0.50, 0.80, 0.50, 0.20)</action>
    <action>key(BACK)</action>
    <action>wait(0.5)</action>

Positions are in [0, 1] of the screen, from its top left corner. The grammar is closed: what is
not in it never reaches a phone.
"""

import re
import time
from dataclasses import dataclass

from agentrl.data.tags import action_in
from agentrl.devices.protocol import Device
from agentrl.errors import ActionError
from agentrl.plugins import did_you_mean

KEYS = ("BACK", "HOME", "ENTER", "DEL", "MENU", "VOLUME_UP", "VOLUME_DOWN")
MAX_WAIT_S = 5.0


@dataclass(slots=True, frozen=True)
class Tap:
    """A short touch at (x, y), in [0, 1] of the screen."""

    x: float
    y: float


@dataclass(slots=True, frozen=True)
class Swipe:
    """A swipe from (x1, y1) to (x2, y2), in [0, 1] of the screen."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(slots=True, frozen=True)
class Key:
    """A key of `KEYS`."""

    name: str


@dataclass(slots=True, frozen=True)
class Wait:
    """Let some seconds pass."""

    seconds: float


Action = Tap | Swipe | Key | Wait

_SWIPE_MS = 300
_KEY = re.compile(r"[A-Z0-9_]+", re.ASCII)
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
_NUMBER = re.compile(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", re.ASCII)
_FORMS = {
    "tap": "tap(x, y)",
    "swipe": "swipe(x1, y1, x2, y2)",
    "key": "key(NAME)",
    "wait": "wait(s)",
}


def parse_action(reply: str) -> Action:
    """The action in a reply.

    Raises:
        ActionError: not exactly one `<action>` tag stands in it, or what is in the tag is no
            action, or a position is outside [0, 1].
    """
    said = action_in(reply)
    call = _CALL.fullmatch(said)
    if call is None:
        forms = ", ".join(_FORMS.values())
        raise ActionError(f"{_short(said)} is no action; they read {forms}")
    name, arguments = call.groups()
    given = [argument.strip() for argument in arguments.split(",")]
    if name == "tap":
        return Tap(*_positions(name, given, 2))
    if name == "swipe":
        return Swipe(*_positions(name, given, 4))
    if name == "key":
        return _key(given)
    if name == "wait":
        return _wait(given)
    raise ActionError(f"there is no action {name[:40]!r}{did_you_mean(name, _FORMS)}")


def format_action(action: Action) -> str:
    """How an agent says an action, with two decimals."""
    if isinstance(action, Tap):
        call = f"tap({action.x:.2f}, {action.y:.2f})"
    elif isinstance(action, Swipe):
        numbers = (action.x1, action.y1, action.x2, action.y2)
        call = f"swipe({', '.join(f'{n:.2f}' for n in numbers)})"
    elif isinstance(action, Key):
        call = f"key({action.name})"
    else:
        call = f"wait({action.seconds:.2f})"
    return f"<action>{call}</action>"


def input_command(action: Tap | Swipe | Key, size: tuple[int, int]) -> tuple[str, ...]:
    """The command that does it on a phone, for a screen of `size` (width, height) pixels.

    Raises:
        ValueError: a position outside [0, 1], or no name of a key.
    """
    width, height = size
    if isinstance(action, Key):
        return ("input", "keyevent", key_code(action.name))
    if isinstance(action, Tap):
        return ("input", "tap", pixel(action.x, width), pixel(action.y, height))
    start = (pixel(action.x1, width), pixel(action.y1, height))
    end = (pixel(action.x2, width), pixel(action.y2, height))
    return ("input", "swipe", *start, *end, str(_SWIPE_MS))


def pixel(position: float, length: int) -> str:
    """The pixel at a position in [0, 1] of a side, as an argument.

    Raises:
        ValueError: the position is outside.
    """
    if not 0 <= position <= 1:
        raise ValueError(f"{position} is outside the screen; positions are in [0, 1]")
    return str(min(int(position * length), length - 1))


def key_code(name: str) -> str:
    """`KEYCODE_BACK` for `BACK`.

    Raises:
        ValueError: no name of a key.
    """
    name = name.upper().removeprefix("KEYCODE_")
    if not _KEY.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a key")
    return f"KEYCODE_{name}"


def perform(device: Device, action: Action) -> None:
    """Do it, without waiting for what comes of it.

    Raises:
        DeviceError: the phone failed.
    """
    if isinstance(action, Tap):
        device.tap(action.x, action.y)
    elif isinstance(action, Swipe):
        device.swipe(action.x1, action.y1, action.x2, action.y2)
    elif isinstance(action, Key):
        device.key(action.name)
    else:
        time.sleep(action.seconds)


def _positions(name: str, given: list[str], count: int) -> list[float]:
    numbers = [_number(text) for text in given]
    if len(numbers) != count:
        raise ActionError(f"{name} takes {count} numbers, not {len(given)}: {_FORMS[name]}")
    for number in numbers:
        if not 0 <= number <= 1:
            raise ActionError(f"{name}: {number:g} is outside the screen; positions are in [0, 1]")
    return numbers


def _key(given: list[str]) -> Key:
    name = given[0].strip("'\"").upper()
    if len(given) != 1 or name not in KEYS:
        known = ", ".join(KEYS)
        raise ActionError(f"there is no key {_short(','.join(given))}; keys are {known}")
    return Key(name)


def _wait(given: list[str]) -> Wait:
    seconds = _number(given[0])
    if len(given) != 1 or not 0 <= seconds <= MAX_WAIT_S:
        raise ActionError(f"wait takes one number of seconds, from 0 to {MAX_WAIT_S:g}")
    return Wait(seconds)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ActionError(f"{_short(text)} is no number such as 0.25")
    return float(text)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
