"""Commands that touch a phone's screen, press its keys and type.

Printable ASCII is typed by `input text`, everything else by ADBKeyboard.
"""

import base64
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import assert_never

from agentrl.actions.screen_actions import Drag, Key, LongPress, Swipe, Tap
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.device import CommandResult
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

Touch = Tap | LongPress | Swipe | Drag
_KEY = re.compile(r"[A-Z0-9_]{1,40}", re.ASCII)
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""Input method that types any text it receives by broadcast."""
_CHOSEN = ("settings", "get", "secure", "default_input_method")
_BOUND = ("dumpsys", "input_method")
_NONE = ("", "null")
_PIECE = 2000
"""Maximum characters per broadcast."""
_POLL_S = 0.05

Run = Callable[[Sequence[Command], Deadline], list[CommandResult]]


def input_command(
    action: Touch | Key, size: tuple[int, int], duration_s: float | None = None
) -> tuple[str, ...]:
    """Return the shell command that performs a touch or a key press."""

    def at(touch: Touch) -> list[str]:
        return [to_pixel(p, n) for point in touch.points for p, n in zip(point, size, strict=True)]

    def ms(touch: Touch) -> str:
        return str(round(1000 * (touch.duration_s if duration_s is None else duration_s)))

    match action:
        case Key(name):
            return ("input", "keyevent", key_code(name))
        case Tap():
            return ("input", "tap", *at(action))
        case LongPress():
            return ("input", "swipe", *at(action), *at(action), ms(action))
        case Swipe():
            return ("input", "swipe", *at(action), ms(action))
        case Drag():
            return ("input", "draganddrop", *at(action), ms(action))
        case _:
            assert_never(action)


def to_pixel(position: float, length: int) -> str:
    """Convert a position in [0, 1] along a side to a pixel, as a command argument."""
    if not 0 <= position <= 1:
        raise ValueError(f"{position} is outside the screen; positions are in [0, 1]")
    # 1.0 is the last pixel, not one beyond the screen.
    return str(min(int(position * length), length - 1))


def key_code(name: str) -> str:
    """Return the key code of a key, such as `KEYCODE_BACK` for `BACK`."""
    name = name.upper().removeprefix("KEYCODE_")
    if not _KEY.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid key name")
    return f"KEYCODE_{name}"


class Keyboard:
    """Turns text into commands, and selects an input method that can type it.

    `input text` types printable ASCII with any input method. Everything else goes through
    ADBKeyboard, and so does ASCII while ADBKeyboard is selected. ADBKeyboard is selected when it is
    first needed; `restore` selects the previous input method again.
    """

    def __init__(self, serial: str, run: Run) -> None:
        """Create a keyboard without contacting the phone."""
        self._serial = serial
        self._run = run
        self._old: str | None = None
        """Input method in use before ADBKeyboard was selected."""

    def commands(self, text: str, deadline: Deadline) -> list[Command]:
        """Return the commands that type text into the focused field."""
        if "\0" in text:
            raise DeviceError(f"{self._serial}: a NUL character cannot be typed")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DeviceError(
                f"{self._serial}: a lone surrogate character cannot be typed"
            ) from error
        if not text:
            return []
        # Check every time, because a broadcast without a receiver is silently lost.
        chosen = self._ask(deadline)
        if chosen != ADB_KEYBOARD:
            if text.isascii() and text.isprintable():
                return input_text(text)
            self._choose(text, chosen, deadline)
        return broadcasts(text)

    def restore(self, deadline: Deadline) -> None:
        """Select the previous input method again, if it was changed."""
        old, self._old = self._old, None
        if old is not None:
            self._run([("ime", "reset") if old in _NONE else ("ime", "set", old)], deadline)

    def _ask(self, deadline: Deadline) -> str:
        (result,) = self._run([_CHOSEN], deadline)
        return result.output.strip()

    def _choose(self, text: str, old: str, deadline: Deadline) -> None:
        self._run([("ime", "enable", ADB_KEYBOARD), ("ime", "set", ADB_KEYBOARD)], deadline)
        if self._ask(deadline) != ADB_KEYBOARD:
            raise DeviceError(
                f"{self._serial}: {text[:40]!r} is not printable ASCII, and the phone has no "
                "input method that can type it. Install ADBKeyboard (adb install "
                "ADBKeyboard.apk); it is selected only while it is needed."
            )
        self._old = old
        log.info("%s: typing through ADBKeyboard instead of %s", self._serial, old)
        # Text sent before the input method is running is silently lost.
        while "mBoundToMethod=false" in self._run([_BOUND], deadline)[0].output:
            try:
                time.sleep(min(_POLL_S, deadline.left_s()))
            except TimeoutError:
                raise DeviceError(f"{self._serial}: ADBKeyboard did not start") from None


def input_text(text: str) -> list[Command]:
    """Return the commands that type printable ASCII."""
    # `input` reads %s as a space, so a literal %s has to be split across two commands.
    pieces = text.replace("%s", "%\0s").split("\0")
    return [("input", "text", piece.replace(" ", "%s")) for piece in pieces if piece]


def broadcasts(text: str) -> list[Command]:
    """Return the commands that make ADBKeyboard type any text, one chunk per command."""
    pieces = (text[at : at + _PIECE].encode() for at in range(0, len(text), _PIECE))
    encoded = (base64.b64encode(piece).decode("ascii") for piece in pieces)
    return [("am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", piece) for piece in encoded]
