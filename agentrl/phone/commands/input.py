"""Commands about fingers and eyes: input, screencap, wm."""

import re

from agentrl.phone.commands.table import command
from agentrl.phone.shell import Call

_KEYS = {
    3: "HOME", 4: "BACK", 19: "DPAD_UP", 20: "DPAD_DOWN", 21: "DPAD_LEFT", 22: "DPAD_RIGHT",
    23: "DPAD_CENTER", 24: "VOLUME_UP", 25: "VOLUME_DOWN", 26: "POWER", 61: "TAB", 62: "SPACE",
    66: "ENTER", 67: "DEL", 82: "MENU", 111: "ESCAPE", 187: "APP_SWITCH", 224: "WAKEUP",
}  # fmt: skip
_SOURCES = {"touchscreen", "keyboard", "mouse", "dpad", "stylus", "touchpad", "trackball"}


@command("input")
def input_(call: Call) -> int:
    """`input [source] tap|swipe|draganddrop|keyevent|text`."""
    arguments = list(call.arguments)
    if arguments and arguments[0] in _SOURCES:
        del arguments[0]
    verb, *values = arguments or [""]
    phone = call.phone
    fault = phone.properties.get("debug.agentrl.input", "")
    if fault == "lost":
        return 0
    if fault:  # it went to a window of the system, which has the focus from now on
        phone.properties["debug.agentrl.focus"] = fault
        return 0
    try:
        if verb == "tap":
            x, y = map(float, values)
            phone.touch(x, y)
        elif verb in ("swipe", "draganddrop"):
            x1, y1, x2, y2, *ms = map(float, values)
            phone.swipe((x1, y1), (x2, y2), int(ms[0]) if ms else 300)
        elif verb in ("keyevent", "keycombination") and values:
            for value in values:
                if value != "--longpress":
                    phone.key(_key_code(value))
        elif verb == "text" and len(values) == 1:
            phone.text(values[0].replace("%s", " "))
        else:
            return call.fail(f"Error: Unknown command: {verb}", 255)
    except ValueError as error:
        return call.fail(f"Error: Invalid arguments for command: {verb}: {error}", 255)
    return 0


def _key_code(value: str) -> str:
    if value.isdigit():
        return f"KEYCODE_{_KEYS.get(int(value), value)}"
    name = value.upper().removeprefix("KEYCODE_")
    if not re.fullmatch(r"[A-Z0-9_]+", name):
        raise ValueError(f"no key {value!r}")
    return f"KEYCODE_{name}"


@command("screencap")
def screencap(call: Call) -> int:
    """`screencap [-p] [FILE]`."""
    files = [a for a in call.arguments if not a.startswith("-")]
    png = "-p" in call.arguments or any(f.endswith(".png") for f in files)
    frame = call.phone.shown.frame
    picture: bytes | memoryview = frame.png if png else frame.raw
    fault = call.phone.properties.get("debug.agentrl.capture", "")
    if fault == "truncated":
        picture = picture[: len(picture) // 2]
    elif fault == "black":
        picture = bytes(picture[:16]) + bytes(len(picture) - 16)
    elif fault == "header":
        picture = b"\xff" * 16
    elif fault == "empty":
        return call.fail("Capturing failed.")
    if files:
        call.phone.files.write(files[0], bytes(picture))
    else:
        call.out(picture)
    return 0


@command("wm")
def wm(call: Call) -> int:
    """`wm size`, `wm density`."""
    width, height = call.phone.size
    if call.arguments == ["size"]:
        return call.say(f"Physical size: {width}x{height}")
    if call.arguments == ["density"]:
        return call.say(f"Physical density: {width * 320 // 720}")
    return call.fail(f"Unknown command: {' '.join(call.arguments)}", 255)
