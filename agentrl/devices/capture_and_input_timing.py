"""Measures how fast each capture and input method is on one phone.

Each method gets the same timeout as a job's own calls.
"""

import contextlib
import itertools
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture import Capture, StreamingCapture
from agentrl.devices.capture.capture_trial import CaptureTrial, measure_lag_s
from agentrl.errors import ConfigError, DeviceError
from agentrl.extension_points import CAPTURE

log = logging.getLogger(__name__)

DEFAULT_METHODS = {"capture": "raw", "input": "shell"}
_SETTINGS: Command = ("am", "start", "-a", "android.settings.SETTINGS")
# Don't use the HOME key, because a phone that blocks touches over adb also blocks keys, although
# captures still work.
_HOME: Command = (
    *("am", "start", "-a", "android.intent.action.MAIN"),
    *("-c", "android.intent.category.HOME"),
)
_HARMLESS: Command = ("input", "keyevent", "KEYCODE_UNKNOWN")


@dataclass(slots=True, kw_only=True, frozen=True)
class MethodTiming:
    """The measurement of one capture or input method."""

    kind: Literal["capture", "input"]
    name: str
    median_ms: float | None = None
    """Median duration; None if the method failed or was not measured."""
    rounds: int = 0
    failure: str = ""
    """Reason why the method cannot be used on this phone."""
    lag_s: float | None = None
    """Upper bound on a stream's lag."""
    picked: bool = False


def measure_methods(
    phone: AdbPhone, *, rounds: int = 5, change: Callable[[], None] | None = None
) -> list[MethodTiming]:
    """Measure every capture and input method.

    Args:
        phone: a phone that is awake and shows a static screen.
        rounds: number of measurements of each method.
        change: changes the screen each time it is called (`screen_toggler`). With it, captures are
            checked for freshness and the lag of the stream is measured.

    Returns:
        One row per method, captures first.
    """
    trial = CaptureTrial(phone.transport, phone.deadlines.frame_s, rounds=rounds, change=change)
    rows = [time_capture(phone, trial, name, change, rounds) for name in capture_methods()]
    rows += time_inputs(phone, _HARMLESS, rounds)
    return rows


def screen_toggler(phone: AdbPhone) -> Callable[[], None]:
    """Return a function that alternates between a phone's settings and its home screen.

    It works on phones with no extra apps installed. The phone is first sent to its home screen: if
    the settings were already open, the first call would change nothing and every capture would
    look stale.
    """
    with contextlib.suppress(DeviceError):  # the measurement will report what is wrong
        phone.shell(*_HOME)
    turns = itertools.cycle((_SETTINGS, _HOME))

    def change() -> None:
        phone.shell(*next(turns))

    return change


def capture_methods() -> dict[str, type[Capture]]:
    """Map names to the built-in and installed captures, the default first."""
    found = {}
    for one in CAPTURE.extensions():
        try:
            found[one.name] = CAPTURE.resolve(one.name)
        except ConfigError as error:
            log.warning("skipping capture method %s: %s", one.name, error)
    return dict(sorted(found.items(), key=lambda item: item[0] != DEFAULT_METHODS["capture"]))


def time_capture(
    phone: AdbPhone, trial: CaptureTrial, name: str, change: Callable[[], None] | None, rounds: int
) -> MethodTiming:
    """Measure one capture method, and its lag if it is a stream and `change` is given."""
    row = MethodTiming(kind="capture", name=name, rounds=rounds)
    try:
        capture: Capture = CAPTURE.resolve(name)(phone.transport)
    except ConfigError as error:
        return replace(row, failure=str(error))
    try:
        if isinstance(capture, StreamingCapture) and change is not None:
            deadline = Deadline(rounds * 2 * phone.deadlines.frame_s)
            capture.lag_s = measure_lag_s(phone.transport, capture, change, rounds, deadline)
        seconds = trial.seconds(capture)
    except (DeviceError, TimeoutError) as error:
        return replace(row, failure=_why(phone, error))
    finally:
        capture.close()
    lag_s = capture.lag_s if isinstance(capture, StreamingCapture) else None
    return replace(row, median_ms=1000 * statistics.median(seconds), lag_s=lag_s)


def time_inputs(
    phone: AdbPhone, command: Command, rounds: int, repeats: Deadline | None = None
) -> list[MethodTiming]:
    """Measure each input method, at least once after its first call."""
    rows = []
    for name, shell in (("input", phone.one_shot_shell), ("shell", phone.persistent_shell)):
        row = MethodTiming(kind="input", name=name, rounds=rounds)
        seconds: list[float] = []
        try:
            for _ in range(rounds + 1):
                if len(seconds) > 1 and repeats is not None and repeats.has_passed:
                    break
                start = time.perf_counter()
                (result,) = shell.run([command], Deadline(phone.deadlines.command_s))
                phone.checked(command, result)
                seconds.append(time.perf_counter() - start)
            # Skip the first call, which also starts the shell.
            row = replace(row, median_ms=1000 * statistics.median(seconds[1:]))
        except (DeviceError, TimeoutError) as error:
            row = replace(row, failure=_why(phone, error))
        rows.append(row)
    return rows


def _why(phone: AdbPhone, error: Exception) -> str:
    return str(error).removeprefix(f"{phone.serial}: ") or "not measured in time"
