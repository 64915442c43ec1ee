"""How fast each capture and each way to run commands is on one phone, and which to take.

`auto` measures a phone when it is opened, within `BUDGET_S`: what has not had its turn by then is
not taken. That costs 0.1 s with a virtual phone, and with a real one mostly what its captures
take; phones are opened in parallel. The stream is left out there, because its lag can only be
measured around a change of the screen, which nobody asked for: `measure` does that on demand.
"""

import contextlib
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture import CAPTURES
from agentrl.devices.capture.capture_trial import Trial
from agentrl.devices.capture.h264_stream import StreamCapture
from agentrl.devices.capture.stream_latency import measured_lag_s
from agentrl.errors import ConfigError, DeviceError

log = logging.getLogger(__name__)

BUDGET_S = 1.0
_ROUNDS = 2
_QUICK = ("raw", "framebuffer", "png")
_USUAL = {"capture": "raw", "input": "shell"}
_CLEARLY = 1.25
"""The usual way is left for one that is faster by this factor: less than that is chance."""
_NOTHING: Command = ("true",)
_SETTINGS: Command = ("am", "start", "-a", "android.settings.SETTINGS")
# No key: a phone that lets no touches through lets no keys through, and is no worse to look at.
_HOME: Command = (
    *("am", "start", "-a", "android.intent.action.MAIN"),
    *("-c", "android.intent.category.HOME"),
)
_HARMLESS: Command = ("input", "keyevent", "KEYCODE_UNKNOWN")


@dataclass(slots=True, kw_only=True, frozen=True)
class Row:
    """What was measured of one way."""

    kind: Literal["capture", "input"]
    name: str
    median_ms: float | None = None
    """None where it failed or was not measured."""
    rounds: int = 0
    failure: str = ""
    """Why it is not to be taken on this phone."""
    lag_s: float | None = None
    """Of a stream: how late it is, at most."""
    picked: bool = False


def measure(
    phone: AdbPhone, *, rounds: int = 5, change: Callable[[], None] | None = None
) -> list[Row]:
    """Measure every capture and every input way, and mark the fastest sound ones.

    Args:
        phone: awake, and with a screen that rests.
        rounds: of each.
        change: changes something on the screen, each time anew (`toggle`). With it every capture
            is checked for freshness, and the lag of the stream is measured.

    Returns:
        One row per way, captures first.
    """
    trial = Trial(phone.line, phone.deadlines.frame_s, rounds=rounds, change=change)
    rows = [_capture(phone, trial, name, change, rounds) for name in CAPTURES]
    rows += _inputs(phone, _HARMLESS, rounds, Deadline(rounds * 2 * phone.deadlines.command_s))
    return _marked(rows)


def toggle(phone: AdbPhone) -> Callable[[], None]:
    """Changes most of a phone's screen: to its settings, and to its home screen again.

    For `measure`, on a phone that nothing is installed on. It goes home at once: from the settings
    the first change would be none, and every capture stale.
    """
    with contextlib.suppress(DeviceError):  # what keeps it from going home is found by measuring
        phone.shell(*_HOME)
    turns = itertools.cycle((_SETTINGS, _HOME))

    def change() -> None:
        phone.shell(*next(turns))

    return change


def choose(phone: AdbPhone, *, capture: str = "auto", input: str = "auto") -> list[Row]:
    """Have a phone use what was asked for; where that is `auto`, what is measured fastest.

    Returns:
        What was measured.

    Raises:
        ConfigError: what was asked for needs a library that is not installed.
    """
    deadline, rows = Deadline(BUDGET_S), []
    if input == "auto":
        rows += _inputs(phone, _NOTHING, _ROUNDS, deadline)
    if capture == "auto":
        trial = Trial(phone.line, phone.deadlines.frame_s, rounds=_ROUNDS, within=deadline)
        rows += [_capture(phone, trial, name, None, _ROUNDS) for name in _QUICK]
    rows = _marked(rows)
    picked = {row.kind: row.name for row in rows if row.picked}
    taken = use(phone, **({"capture": capture, "input": input} | picked))
    told = ", ".join(f"{row.name} {row.failure or f'{row.median_ms:.1f} ms'}" for row in rows)
    log.info("%s: capture %s, input %s (%s)", phone.serial, *taken, told or "as asked")
    return rows


def use(phone: AdbPhone, *, capture: str, input: str) -> tuple[str, str]:
    """Have a phone use what was asked for; where that is `auto`, the usual, without measuring.

    Returns:
        The names of the capture and of the way to run commands.

    Raises:
        ConfigError: what was asked for needs a library that is not installed.
    """
    asked = {"capture": capture, "input": input}
    taken = {kind: _USUAL[kind] if name == "auto" else name for kind, name in asked.items()}
    phone.use(**taken)
    return taken["capture"], taken["input"]


def _capture(
    phone: AdbPhone, trial: Trial, name: str, change: Callable[[], None] | None, rounds: int
) -> Row:
    row = Row(kind="capture", name=name, rounds=rounds)
    try:
        capture = CAPTURES[name](phone.line)
    except ConfigError as error:
        return replace(row, failure=str(error))
    try:
        if isinstance(capture, StreamCapture) and change is not None:
            deadline = Deadline(rounds * 2 * phone.deadlines.frame_s)
            capture.lag_s = measured_lag_s(phone.line, capture, change, rounds, deadline)
        seconds = trial.seconds(capture)
    except (DeviceError, TimeoutError) as error:
        return replace(row, failure=_why(phone, error))
    finally:
        capture.close()
    lag_s = capture.lag_s if isinstance(capture, StreamCapture) else None
    return replace(row, median_ms=1000 * statistics.median(seconds), lag_s=lag_s)


def _inputs(phone: AdbPhone, command: Command, rounds: int, deadline: Deadline) -> list[Row]:
    rows = []
    for name, shell in (("input", phone.per_call), ("shell", phone.kept)):
        row = Row(kind="input", name=name, rounds=rounds)
        seconds = []
        try:
            for _ in range(rounds + 1):
                start = time.perf_counter()
                (result,) = shell.run([command], Deadline(deadline.left_s()))
                phone.checked(command, result)
                seconds.append(time.perf_counter() - start)
            row = replace(row, median_ms=1000 * statistics.median(seconds[1:]))
        except (DeviceError, TimeoutError) as error:
            row = replace(row, failure=_why(phone, error))
        rows.append(row)
    return rows


def _why(phone: AdbPhone, error: Exception) -> str:
    return str(error).removeprefix(f"{phone.serial}: ") or "not measured in time"


def _marked(rows: Sequence[Row]) -> list[Row]:
    """The rows, with the one of each kind that is to be taken."""
    return [replace(row, picked=row is _best(rows, row.kind)) for row in rows]


def _best(rows: Sequence[Row], kind: str) -> Row | None:
    """The fastest sound one; the usual one where it is hardly slower."""
    sound = [row for row in rows if row.kind == kind and row.median_ms is not None]
    fastest = min(sound, key=_ms, default=None)
    for row in sound:
        if fastest is not None and row.name == _USUAL[kind] and _ms(row) <= _CLEARLY * _ms(fastest):
            return row
    return fastest


def _ms(row: Row) -> float:
    assert row.median_ms is not None
    return row.median_ms
