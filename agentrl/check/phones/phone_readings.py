"""Findings parsed from the output of a phone's own commands (`getprop`, `dumpsys`, ...)."""

import re
from collections.abc import Callable, Iterator, Sequence

from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.capture.phone_screen import DISPLAY, orientation_in
from agentrl.devices.device import CommandResult
from agentrl.devices.guard.foreground import WINDOW, parse_front_package
from agentrl.devices.input.input_commands import ADB_KEYBOARD
from agentrl.devices.phone_battery import BATTERY, BatteryReading
from agentrl.devices.readiness import POLICY, POWER, is_awake, is_locked

_LEAST_BATTERY = 20
_LEAST_MB = 500
_HOT_C = 45
_YOUNG_S = 60
_TURNED = ("upright", "turned to the left", "upside down", "turned to the right")
_STAY_ON = "; adb shell svc power stayon true keeps it awake while charging"


def _model(brand: CommandResult, name: CommandResult, version: CommandResult) -> Finding:
    model = " ".join(word for r in (brand, name) if (word := r.output.strip())) or "unnamed"
    return ok("phone", f"{model}, Android {version.output.strip() or 'of unknown version'}")


def _booted(completed: CommandResult, uptime: CommandResult) -> Finding:
    if completed.output.strip() != "1":
        return wrong("started", "Android has not started yet", "wait for its home screen")
    seconds = re.match(r"[\d.]+", uptime.output)
    up_s = float(seconds[0]) if seconds and not uptime.code else None
    if up_s is None:
        return ok("started", "yes")
    if up_s < _YOUNG_S:
        return note(
            "started",
            f"only {up_s:.0f} s ago",
            "if you did not restart the phone, it reboots by itself; try another cable or charger",
        )
    return ok("started", f"{up_s / 3600:.1f} h ago")


def _awake(power: CommandResult) -> Finding:
    if is_awake(power):
        return ok("awake", "yes")
    fix = "adb shell input keyevent WAKEUP, or devices.wake=true" + _STAY_ON
    return wrong("awake", "the screen is off", fix)


def _unlocked(policy: CommandResult) -> Finding:
    if not is_locked(policy):
        return ok("unlocked", "yes")
    return wrong(
        "unlocked",
        "the lock screen is on",
        "unlock it by hand, and turn off the lock in the settings (security, screen lock: none)",
    )


def _battery(battery: CommandResult) -> Finding:
    reading = BatteryReading.parse(battery)
    if reading.level is None:
        return note("battery", "not reported", "none needed if it is an emulator")
    detail = str(reading)
    if reading.level < _LEAST_BATTERY and not reading.powered:
        return wrong("battery", detail, "charge it, or the phone will turn off during a job")
    if reading.degrees >= _HOT_C:
        return note("battery", detail, "cool the phone or remove its case, or it will throttle")
    if not reading.powered:
        return note("battery", detail, "plug the phone into a charger before a long job")
    return ok("battery", detail)


def _storage(df: CommandResult) -> Finding:
    rows = [line.split() for line in df.output.splitlines()[1:]]
    free_kb = next((int(r[3]) for r in rows if len(r) >= 4 and r[3].isdigit()), None)
    if df.code or free_kb is None:
        return note("storage", "not reported", "check the phone's settings")
    detail = f"{free_kb / 1e6:.1f} GB free"
    if free_kb < 1000 * _LEAST_MB:
        fix = "free up storage, or apps will fail, and on some phones captures as well"
        return wrong("storage", detail, fix)
    return ok("storage", detail)


def _rotation(auto: CommandResult, display: CommandResult) -> Finding:
    turned = orientation_in(display.output)
    if turned:
        return wrong(
            "rotation",
            f"the screen is {_TURNED[turned]}",
            "adb shell settings put system accelerometer_rotation 0; the same with user_rotation",
        )
    if auto.output.strip() == "1":
        fix = "adb shell settings put system accelerometer_rotation 0"
        return note("rotation", "upright, but auto-rotate is on", fix)
    return ok("rotation", "upright and locked")


def _in_front(window: CommandResult) -> Finding:
    # A crash dialog's window is named after the app that failed.
    dialog = re.search(
        r"^ *mCurrentFocus=Window\{\S+ (?:u\d+ )?Application (Error|Not Responding): (\S+?)\}",
        window.output,
        re.MULTILINE,
    )
    if dialog is not None:
        failure = "has crashed" if dialog[1] == "Error" else "is not responding"
        fix = f"press its button, or: adb shell am force-stop {dialog[2]}"
        return wrong("in front", f"a dialog that {dialog[2]} {failure}", fix)
    package = parse_front_package(window.output)
    if package is None:
        return note("in front", "no window has the focus", "look at the screen")
    if re.search(r"dialer|incallui|telecom", package):
        fix = "decline it, and remove the SIM card or turn on airplane mode"
        return wrong("in front", f"a call ({package})", fix)
    if re.search(r"permissioncontroller|packageinstaller|systemui", package):
        return wrong("in front", f"a system dialog ({package})", "answer it on the screen")
    if not re.search(r"launcher|home|settings$|agentrl", package):
        fix = "none needed, since jobs start their own app; disable this one if it comes back"
        return note("in front", package, fix)
    return ok("in front", package)


def _typing(chosen: CommandResult, known: CommandResult) -> Finding:
    if ADB_KEYBOARD in (chosen.output.strip(), *known.output.split()):
        return ok("typing", "any text, through ADBKeyboard")
    return note(
        "typing",
        f"only ASCII, through {chosen.output.strip() or 'no input method'}",
        "to type other text, install ADBKeyboard (github.com/senzhk/ADBKeyBoard); games need none",
    )


_READINGS: tuple[tuple[tuple[Command, ...], Callable[..., Finding]], ...] = (
    (
        (
            ("getprop", "ro.product.manufacturer"),
            ("getprop", "ro.product.model"),
            ("getprop", "ro.build.version.release"),
        ),
        _model,
    ),
    ((("getprop", "sys.boot_completed"), ("cat", "/proc/uptime")), _booted),
    ((POWER,), _awake),
    ((POLICY,), _unlocked),
    ((BATTERY,), _battery),
    ((("df", "/data"),), _storage),
    (
        (("settings", "get", "system", "accelerometer_rotation"), DISPLAY),
        _rotation,
    ),
    ((WINDOW,), _in_front),
    (
        (("settings", "get", "secure", "default_input_method"), ("ime", "list", "-a", "-s")),
        _typing,
    ),
)
COMMANDS: tuple[Command, ...] = tuple(command for group, _ in _READINGS for command in group)
"""The commands to run on the phone, in this order."""


def parse_readings(results: Sequence[CommandResult]) -> Iterator[Finding]:
    """Yield the findings from the results of `COMMANDS`."""
    rest = iter(results)
    for commands, parse in _READINGS:
        yield parse(*(next(rest) for _ in commands))
