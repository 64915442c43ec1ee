"""Commands about fingers: input, ime."""

from collections.abc import Callable

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.phone import Phone
from agentrl.virtual_phone.shell.command_context import Call
from agentrl.virtual_phone.system.adb_keyboard import key_code
from agentrl.virtual_phone.system.phone_settings import ADB_KEYBOARD, LATIN_KEYBOARD

_SOURCES = frozenset((
    "touchscreen", "keyboard", "mouse", "dpad", "stylus", "touchpad", "touchnavigation",
    "trackball", "gamepad", "joystick", "rotaryencoder",
))  # fmt: skip
_INPUT_METHODS = (LATIN_KEYBOARD, ADB_KEYBOARD)
_LONGEST_MS = 600_000


@command("input")
def input_(call: Call) -> int:
    """`input [source] [-d DISPLAY] tap|swipe|draganddrop|motionevent|text|keyevent|...`."""
    arguments = list(call.arguments)
    if arguments and arguments[0] in _SOURCES:
        del arguments[0]
    if arguments[:1] == ["-d"]:
        del arguments[:2]
    verb, *values = arguments or [""]
    phone, run = call.phone, _VERBS.get(verb)
    if run is None:
        return call.fail(f"Error: Unknown command: {verb}", 255)
    fault = phone.faults.get("input")
    if fault and fault != "lost":  # it went to a window of the system, which has the focus now
        phone.faults.set("focus", fault)
    if fault:
        return 0
    try:
        run(phone, values)
    except (ValueError, OverflowError) as error:
        return call.fail(f"Error: Invalid arguments for command: {verb}: {error}", 255)
    return 0


def _tap(phone: Phone, values: list[str]) -> None:
    x, y = _numbers(values)
    phone.hands.touch(x, y)


def _swipe(phone: Phone, values: list[str]) -> None:
    x1, y1, x2, y2, *ms = _numbers(values)
    if len(ms) > 1:
        raise ValueError("too many numbers")
    phone.hands.swipe((x1, y1), (x2, y2), min(int(ms[0]), _LONGEST_MS) if ms else 300)


def _motion(phone: Phone, values: list[str]) -> None:
    what, *rest = values or [""]
    x, y = _numbers(rest) if rest or what.upper() != "CANCEL" else (0.0, 0.0)
    phone.hands.move(what.upper(), x, y)


def _text(phone: Phone, values: list[str]) -> None:
    """ASCII alone: for everything else there is no key, and the real command raises, too."""
    if not values or not values[0].isascii():
        raise ValueError("Attempt to get length of null array")
    phone.hands.text(values[0].replace("%s", " "))


def _keys(phone: Phone, values: list[str]) -> None:
    codes = [key_code(value) for value in values if not value.startswith("--")]
    if not codes:
        raise ValueError('Argument expected after "keyevent"')
    for code in codes:
        phone.hands.key(code)


def _press(phone: Phone, values: list[str]) -> None:
    phone.hands.key("KEYCODE_DPAD_CENTER")


def _roll(phone: Phone, values: list[str]) -> None:
    x, y = _numbers(values)
    across = "RIGHT" if x > 0 else "LEFT"
    down = "DOWN" if y > 0 else "UP"
    for steps, direction in ((x, across), (y, down)):
        if steps:
            phone.hands.key(f"KEYCODE_DPAD_{direction}")


def _numbers(values: list[str]) -> list[float]:
    """Finite numbers.

    Raises:
        ValueError: one is none.
    """
    numbers = [float(value) for value in values]
    if not all(abs(number) < 1e9 for number in numbers):
        raise ValueError("no position")
    return numbers


_VERBS: dict[str, Callable[[Phone, list[str]], None]] = {
    "tap": _tap,
    "swipe": _swipe,
    "draganddrop": _swipe,
    "motionevent": _motion,
    "text": _text,
    "keyevent": _keys,
    "keycombination": _keys,
    "press": _press,
    "roll": _roll,
}


@command("ime")
def ime(call: Call) -> int:
    """`ime list [-a] [-s] | enable ID | disable ID | set ID | reset`."""
    verb, *arguments = call.arguments or [""]
    words = [word for word in arguments if not word.startswith("-")]
    enabled = (call.phone.settings.get("secure", "enabled_input_methods") or "").split(":")
    if verb == "list":
        for one in _INPUT_METHODS if "-a" in arguments else enabled:
            call.say(one if "-s" in arguments else f"{one}:\n  mId={one} mIsAuxIme=false")
        return 0
    if verb == "reset":
        _choose(call, [LATIN_KEYBOARD], LATIN_KEYBOARD)
        return call.say("Reset current and enabled IMEs for user #0")
    if verb not in ("enable", "disable", "set") or len(words) != 1:
        return call.fail(f"Unknown command: ime {verb}", 255)
    (wanted,) = words
    known = wanted in (_INPUT_METHODS if verb != "set" else enabled)
    if not known:
        told = f"Unknown input method {wanted} cannot be {verb}d for user #0"
        return call.fail(told if verb != "set" else f"Error: Unknown id: {wanted} for user #0")
    chosen = call.phone.settings.get("secure", "default_input_method") or LATIN_KEYBOARD
    if verb == "set":
        _choose(call, enabled, wanted)
        return call.say(f"Input method {wanted} selected for user #0")
    left = [one for one in enabled if one and one != wanted]
    if verb == "enable":
        _choose(call, [*left, wanted], chosen)
        return call.say(f"Input method {wanted}: now enabled for user #0")
    _choose(call, left, LATIN_KEYBOARD if chosen == wanted else chosen)
    return call.say(f"Input method {wanted}: now disabled for user #0")


def _choose(call: Call, enabled: list[str], chosen: str) -> None:
    call.phone.settings.put("secure", "enabled_input_methods", ":".join(enabled))
    call.phone.settings.put("secure", "default_input_method", chosen)
