"""What a phone tells of itself, read out of what its own commands print."""

import re
from collections.abc import Callable, Iterator, Sequence

from agentrl.devices.adb.shell_script import Command
from agentrl.devices.capture.screen_size import DISPLAY, orientation_in
from agentrl.devices.device import Result
from agentrl.devices.foreground_window import package_in
from agentrl.devices.guard.foreground import WINDOW
from agentrl.devices.input.text_input import ADB_KEYBOARD
from agentrl.findings import Finding, note, ok, wrong

_LEAST_BATTERY = 20
_LEAST_MB = 500
_HOT_C = 45
_YOUNG_S = 60
_TURNED = ("upright", "turned to the left", "upside down", "turned to the right")
_HANDS_OFF = "; adb shell svc power stayon true keeps it awake while it is charged"


def _model(brand: Result, name: Result, version: Result) -> Finding:
    named = " ".join(word for r in (brand, name) if (word := r.output.strip())) or "nameless"
    return ok("phone", f"{named}, Android {version.output.strip() or 'of no version'}")


def _booted(completed: Result, uptime: Result) -> Finding:
    if completed.output.strip() != "1":
        return wrong("started", "Android has not started yet", "wait for its home screen")
    told = re.match(r"[\d.]+", uptime.output)
    up_s = float(told[0]) if told and not uptime.code else None
    if up_s is None:
        return ok("started", "yes")
    if up_s < _YOUNG_S:
        return note(
            "started",
            f"only {up_s:.0f} s ago",
            "if nobody started it, it restarts by itself: try another cable and charger",
        )
    return ok("started", f"{up_s / 3600:.1f} h ago")


def _awake(power: Result) -> Finding:
    told = dict(re.findall(r"(mWakefulness|mHoldingDisplaySuspendBlocker)=(\w+)", power.output))
    if told.get("mWakefulness", "Awake") == "Awake" and (
        told.get("mHoldingDisplaySuspendBlocker") != "false"
    ):
        return ok("awake", "yes")
    mend = "adb shell input keyevent WAKEUP" + _HANDS_OFF
    return wrong("awake", "its screen is off", mend)


def _unlocked(policy: Result) -> Finding:
    shown = re.search(r"(?:mShowingLockscreen|isStatusBarKeyguard|showing)=true", policy.output)
    if shown is None:
        return ok("unlocked", "yes")
    return wrong(
        "unlocked",
        "the lock screen is up",
        "unlock it by hand, and switch the lock off in its settings (security, screen lock: none)",
    )


def battery_level(battery: Result) -> float | None:
    """Percent, out of what `dumpsys battery` prints; None where it does not say."""
    return _number(_battery_values(battery).get("level"))


def _battery_values(battery: Result) -> dict[str, str]:
    return dict(re.findall(r"^\s*([A-Za-z ]+): (\S+)", battery.output, re.MULTILINE))


def _battery(battery: Result) -> Finding:
    told, level = _battery_values(battery), battery_level(battery)
    if level is None:
        return note("battery", "it does not say", "none needed if it is an emulator")
    powered = any(told.get(f"{source} powered") == "true" for source in ("AC", "USB", "Wireless"))
    degrees = (_number(told.get("temperature")) or 0) / 10
    detail = f"{level:.0f}%, {'charging' if powered else 'not charging'}, {degrees:.0f} C"
    if level < _LEAST_BATTERY and not powered:
        return wrong("battery", detail, "charge it: it will go off in the middle of a job")
    if degrees >= _HOT_C:
        return note("battery", detail, "it is hot and will slow down: out of the sun and its case")
    if not powered:
        return note("battery", detail, "put it on a charger before a long job")
    return ok("battery", detail)


def _storage(df: Result) -> Finding:
    rows = [line.split() for line in df.output.splitlines()[1:]]
    free_kb = next((int(r[3]) for r in rows if len(r) >= 4 and r[3].isdigit()), None)
    if df.code or free_kb is None:
        return note("storage", "it does not say", "look in its settings")
    detail = f"{free_kb / 1e6:.1f} GB free"
    if free_kb < 1000 * _LEAST_MB:
        mend = "make room: apps fail, and some phones give no captures"
        return wrong("storage", detail, mend)
    return ok("storage", detail)


def _rotation(auto: Result, display: Result) -> Finding:
    turned = orientation_in(display.output)
    if turned:
        return wrong(
            "rotation",
            f"the screen is {_TURNED[turned]}",
            "adb shell settings put system accelerometer_rotation 0, and user_rotation 0",
        )
    if auto.output.strip() == "1":
        mend = "adb shell settings put system accelerometer_rotation 0"
        return note("rotation", "upright, but it turns with the phone", mend)
    return ok("rotation", "upright, and stays so")


def _in_front(window: Result) -> Finding:
    dialog = re.search(
        r"^ *mCurrentFocus=Window\{\S+ (?:u\d+ )?Application (Error|Not Responding): (\S+?)\}",
        window.output,
        re.MULTILINE,
    )
    if dialog is not None:
        told = "has crashed" if dialog[1] == "Error" else "does not respond"
        mend = f"press its button, or: adb shell am force-stop {dialog[2]}"
        return wrong("in front", f"a dialog says that {dialog[2]} {told}", mend)
    package = package_in(window.output)
    if package is None:
        return note("in front", "no window has the focus", "look at its screen")
    if re.search(r"dialer|incallui|telecom", package):
        mend = "decline it, and take the SIM out or switch flight mode on"
        return wrong("in front", f"a call ({package})", mend)
    if re.search(r"permissioncontroller|packageinstaller|systemui", package):
        return wrong("in front", f"a dialog of the system ({package})", "answer it on its screen")
    if not re.search(r"launcher|home|settings$|agentrl", package):
        mend = "jobs start their own app; if this one comes back by itself, disable it"
        return note("in front", package, mend)
    return ok("in front", package)


def _typing(chosen: Result, known: Result) -> Finding:
    if ADB_KEYBOARD in (chosen.output.strip(), *known.output.split()):
        return ok("typing", "any text, by ADBKeyboard")
    return note(
        "typing",
        f"ASCII alone, by {chosen.output.strip() or 'no input method'}",
        "for other text install ADBKeyboard (github.com/senzhk/ADBKeyBoard); games need none",
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
    ((("dumpsys", "power"),), _awake),
    ((("dumpsys", "window", "policy"),), _unlocked),
    ((("dumpsys", "battery"),), _battery),
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
"""What has to be run on the phone, in this order."""


def read(results: Sequence[Result]) -> Iterator[Finding]:
    """What the results of `COMMANDS` tell."""
    rest = iter(results)
    for commands, tell in _READINGS:
        yield tell(*(next(rest) for _ in commands))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
