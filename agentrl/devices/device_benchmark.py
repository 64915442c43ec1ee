"""Measures how fast each capture and input method is on one phone, and picks the fastest.

`auto` measures a phone when it is opened: every method once, then repeatedly while `BUDGET_S`
lasts. Each method gets the same timeout as a job's own calls, so that on a slow link the choice
does not depend on the order of measurement. This takes 0.1 s on a virtual phone; on a real phone,
captures take most of the time. Phones are opened in parallel. `auto` skips the stream, because
measuring its lag requires changing the screen, which opening a phone must not do;
`measure_methods` measures it on demand.
"""

import contextlib
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
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

BUDGET_S = 1.0
"""Seconds for which `auto` repeats capture measurements, and likewise input measurements; the
first round may take longer."""
_ROUNDS = 2
_USUAL = {"capture": "raw", "input": "shell"}
_CLEARLY = 1.25
"""Only a method faster by this factor replaces the default; smaller differences are noise."""
_NOTHING: Command = ("true",)
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
    """Measure every capture and input method, and mark the fastest that work.

    Args:
        phone: a phone that is awake and shows a static screen.
        rounds: number of measurements of each method.
        change: changes the screen each time it is called (`screen_toggler`). With it, captures are
            checked for freshness and the lag of the stream is measured.

    Returns:
        One row per method, captures first.
    """
    trial = CaptureTrial(phone.transport, phone.deadlines.frame_s, rounds=rounds, change=change)
    rows = [_capture(phone, trial, name, change, rounds) for name in _captures()]
    rows += _inputs(phone, _HARMLESS, rounds)
    return _marked(rows)


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


def choose_methods(
    phone: AdbPhone, *, capture: str = "auto", input: str = "auto"
) -> list[MethodTiming]:
    """Set a phone's capture and input methods; `auto` measures them and picks the fastest."""
    rows = []
    if input == "auto":
        rows += _inputs(phone, _NOTHING, _ROUNDS, Deadline(BUDGET_S))
    if capture == "auto":
        # Skip the stream, because measuring its lag requires changing the screen.
        trial = CaptureTrial(
            phone.transport, phone.deadlines.frame_s, rounds=_ROUNDS, repeat_s=BUDGET_S
        )
        quick = [name for name, cls in _captures().items() if cls.measured_at_open]
        rows += [_capture(phone, trial, name, None, _ROUNDS) for name in quick]
    rows = _marked(rows)
    picked = {row.kind: row.name for row in rows if row.picked}
    taken = set_methods(phone, **({"capture": capture, "input": input} | picked))
    timings = ", ".join(f"{row.name} {row.failure or f'{row.median_ms:.1f} ms'}" for row in rows)
    log.info("%s: capture %s, input %s (%s)", phone.serial, *taken, timings or "as configured")
    return rows


def set_methods(phone: AdbPhone, *, capture: str, input: str) -> tuple[str, str]:
    """Set a phone's capture and input methods and return them; `auto` means the defaults."""
    requested = {"capture": capture, "input": input}
    taken = {kind: _USUAL[kind] if name == "auto" else name for kind, name in requested.items()}
    phone.use(**taken)
    return taken["capture"], taken["input"]


def _captures() -> dict[str, type[Capture]]:
    """Map names to the built-in and installed captures, the default first."""
    found = {}
    for one in CAPTURE.extensions():
        try:
            found[one.name] = CAPTURE.resolve(one.name)
        except ConfigError as error:
            log.warning("skipping capture method %s: %s", one.name, error)
    return dict(sorted(found.items(), key=lambda item: item[0] != _USUAL["capture"]))


def _capture(
    phone: AdbPhone, trial: CaptureTrial, name: str, change: Callable[[], None] | None, rounds: int
) -> MethodTiming:
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


def _inputs(
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


def _marked(rows: Sequence[MethodTiming]) -> list[MethodTiming]:
    """Mark the fastest working method of each kind, or the default if it is hardly slower."""
    picked = set()
    for kind, usual in _USUAL.items():
        works = {r.name: r.median_ms for r in rows if r.kind == kind and r.median_ms is not None}
        if works:
            fastest = min(works, key=lambda name: works[name])
            keeps = usual in works and works[usual] <= _CLEARLY * works[fastest]
            picked.add((kind, usual if keeps else fastest))
    return [replace(row, picked=(row.kind, row.name) in picked) for row in rows]
