"""Commands for input: input, ime."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from virtual_phone.commands.command_table import command
from virtual_phone.input_handler import key_code
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.phone_settings import ADB_KEYBOARD, LATIN_KEYBOARD
from virtual_phone.virtual_phone import VirtualPhone

_SOURCES = frozenset((
    "touchscreen", "keyboard", "mouse", "dpad", "stylus", "touchpad", "touchnavigation",
    "trackball", "gamepad", "joystick", "rotaryencoder",
))  # fmt: skip
_INPUT_METHODS = (LATIN_KEYBOARD, ADB_KEYBOARD)
_MAX_MS = 600_000
_LONG_PRESS_MS, _LONG_KEY_MS = 400, 500
"""Android's `getLongPressTimeout()` and `getGlobalActionKeyTimeout()`."""

Gesture = tuple[Callable[[], object], int]
"""Action of the phone, and the duration in milliseconds of the gesture that precedes it."""


@command("input")
def input_(ctx: CommandContext) -> int | Awaitable[int]:
    """`input [source] [-d DISPLAY] tap|swipe|draganddrop|motionevent|text|keyevent|...`.

    Gestures take time only on phones with `tempo="real"`.
    """
    arguments = list(ctx.arguments)
    if arguments and arguments[0] in _SOURCES:
        del arguments[0]
    if arguments[:1] == ["-d"]:
        del arguments[:2]
    verb, *values = arguments or [""]
    phone, run = ctx.phone, _VERBS.get(verb)
    if run is None:
        return ctx.fail(f"Error: Unknown command: {verb}", 255)
    try:
        act, ms = run(phone, values)
    except (ValueError, OverflowError) as error:
        return ctx.fail(f"Error: Invalid arguments for command: {verb}: {error}", 255)
    taken = is_taken(phone)
    # On a real phone, `input` does not return until the gesture has ended.
    if ms and phone.tempo == "real":
        front = phone.tasks.apps.get(phone.tasks.front or "")
        moves_finger = verb == "swipe" and front is not None and front.is_live

        async def finish() -> int:
            # A live app moves the finger itself, in the same time.
            if moves_finger and not taken:
                act()
            await asyncio.sleep(ms / 1000)
            if not moves_finger and not taken:
                act()
            return 0

        return finish()
    if not taken:
        act()
    return 0


def is_taken(phone: VirtualPhone) -> bool:
    """Return whether a fault diverts input from the app: lost, or taken by a system window."""
    fault = phone.faults.get("input")
    if fault and fault != "lost":  # the window has the focus now
        phone.faults.set("focus", fault)
    return bool(fault)


def _tap(phone: VirtualPhone, values: list[str]) -> Gesture:
    x, y = _numbers(values)
    return partial(phone.input.touch, x, y), 0


def _swipe(phone: VirtualPhone, values: list[str]) -> Gesture:
    x1, y1, x2, y2, *given = _numbers(values, 4, 5)
    ms = min(int(given[0]), _MAX_MS) if given and given[0] >= 0 else 300
    return partial(phone.input.swipe, (x1, y1), (x2, y2), ms), ms


def _drag(phone: VirtualPhone, values: list[str]) -> Gesture:
    act, ms = _swipe(phone, values)
    return act, _LONG_PRESS_MS + ms


def _motion(phone: VirtualPhone, values: list[str]) -> Gesture:
    what, *rest = values or [""]
    if what.upper() not in ("DOWN", "MOVE", "UP", "CANCEL"):
        raise ValueError(f"Unknown motion event: {what}")
    x, y = _numbers(rest) if rest or what.upper() != "CANCEL" else (0.0, 0.0)
    return partial(phone.input.move, what.upper(), x, y), 0


def _text(phone: VirtualPhone, values: list[str]) -> Gesture:
    """Type text; raise for characters without a key, like the real command."""
    # Android looks up a key for every character.
    if not values or not values[0].isascii():
        raise ValueError("Attempt to get length of null array")
    return partial(phone.input.text, values[0].replace("%s", " ")), 0


def _keys(phone: VirtualPhone, values: list[str]) -> Gesture:
    """`keyevent [--longpress | --doubletap | --async] KEYS`, `keycombination [-t MS] KEYS`."""
    ms = _LONG_KEY_MS if "--longpress" in values else 0
    if values[:1] == ["-t"]:
        ms, values = min(int(_numbers(values[1:2], 1)[0]), _MAX_MS), values[2:]
    codes = [key_code(value) for value in values if not value.startswith("--")]
    if not codes:
        raise ValueError('Argument expected after "keyevent"')

    def press() -> None:
        for code in codes:
            phone.input.key(code)

    return press, ms


def _wheel(phone: VirtualPhone, values: list[str]) -> Gesture:
    """`scroll X Y --axis VSCROLL,AMOUNT`: swipe by AMOUNT tenths of the screen."""
    places = [value for value in values if value[:1] != "-" and "," not in value]
    x, y = _numbers(places) if places else (0.0, 0.0)
    amounts = [value.partition(",")[2] for value in values if value.startswith("VSCROLL,")]
    height = phone.geometry.size[1]
    end = y + sum(_numbers(amounts, 0, 1)) * height / 10
    return partial(phone.input.swipe, (x, y), (x, min(max(end, 0.0), height - 1.0)), 0), 0


def _numbers(values: list[str], least: int = 2, most: int = 2) -> list[float]:
    """Parse finite numbers."""
    if not least <= len(values) <= most:
        raise ValueError(f"expected {least} numbers, got {len(values)}")
    try:
        numbers = [float(value) for value in values]
    except ValueError as error:
        wrong = str(error).partition(": ")[2].strip("'")
        raise ValueError(f'For input string: "{wrong[:40]}"') from None
    if not all(abs(number) < 1e9 for number in numbers):
        raise ValueError("position out of range")
    return numbers


_VERBS: dict[str, Callable[[VirtualPhone, list[str]], Gesture]] = {
    "tap": _tap,
    "swipe": _swipe,
    "draganddrop": _drag,
    "motionevent": _motion,
    "text": _text,
    "keyevent": _keys,
    "keycombination": _keys,
    "scroll": _wheel,
}


@command("ime")
def ime(ctx: CommandContext) -> int:
    """`ime list [-a] [-s] | enable ID | disable ID | set ID | reset`."""
    verb, *arguments = ctx.arguments or [""]
    words = [word for word in arguments if not word.startswith("-")]
    enabled = (ctx.phone.settings.get("secure", "enabled_input_methods") or "").split(":")
    if verb == "list":
        for method in _INPUT_METHODS if "-a" in arguments else enabled:
            ctx.print(method if "-s" in arguments else f"{method}:\n  mId={method} mIsAuxIme=false")
        return 0
    if verb == "reset":
        _choose(ctx, [LATIN_KEYBOARD], LATIN_KEYBOARD)
        return ctx.print("Reset current and enabled IMEs for user #0")
    if verb not in ("enable", "disable", "set") or len(words) != 1:
        return ctx.fail(f"Unknown command: ime {verb}", 255)
    (method,) = words
    known = method in (_INPUT_METHODS if verb != "set" else enabled)
    if not known:
        error = f"Unknown input method {method} cannot be {verb}d for user #0"
        return ctx.fail(error if verb != "set" else f"Error: Unknown id: {method} for user #0")
    chosen = ctx.phone.settings.get("secure", "default_input_method") or LATIN_KEYBOARD
    if verb == "set":
        _choose(ctx, enabled, method)
        return ctx.print(f"Input method {method} selected for user #0")
    others = [name for name in enabled if name and name != method]
    if verb == "enable":
        _choose(ctx, [*others, method], chosen)
        return ctx.print(f"Input method {method}: now enabled for user #0")
    _choose(ctx, others, LATIN_KEYBOARD if chosen == method else chosen)
    return ctx.print(f"Input method {method}: now disabled for user #0")


def _choose(ctx: CommandContext, enabled: list[str], chosen: str) -> None:
    ctx.phone.settings.put("secure", "enabled_input_methods", ":".join(enabled))
    ctx.phone.settings.put("secure", "default_input_method", chosen)
