"""Typing on a phone: what can be typed by which way."""

import base64
import logging
import time
from collections.abc import Callable, Sequence

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.device import Result
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""An input method that types what a broadcast brings, whatever its characters."""
_CHOSEN = ("settings", "get", "secure", "default_input_method")
_BOUND = ("dumpsys", "input_method")
_NONE = ("", "null")
_PIECE = 2000
"""Characters of one broadcast."""
_POLL_S = 0.05

Run = Callable[[Sequence[Command], Deadline], list[Result]]


class Keyboard:
    """Turns text into commands, and has the phone ready for them.

    `input text` types printable ASCII with whatever input method the phone has. Everything else
    goes through ADBKeyboard, and ASCII too where that is the input method. If it is not, it is
    chosen as soon as it is needed, and the old one again at the end.
    """

    def __init__(self, serial: str, run: Run) -> None:
        """Asks the phone nothing yet.

        Args:
            serial: for messages.
            run: carries commands out on the phone.
        """
        self._serial = serial
        self._run = run
        self._old: str | None = None
        """The one that it had before we chose another."""

    def commands(self, text: str, deadline: Deadline) -> list[Command]:
        """What types a text into the focused field.

        Args:
            text: any characters.
            deadline: of what it takes to have the phone ready.

        Raises:
            DeviceError: the text holds what nobody can type, or no way types all of it.
        """
        self._check(text)
        if not text:
            return []
        # Each time anew: a broadcast that nobody listens to is lost without a word.
        chosen = self._ask(deadline)
        if chosen != ADB_KEYBOARD:
            if text.isascii() and text.isprintable():
                return input_text(text)
            self._choose(text, chosen, deadline)
        return broadcasts(text)

    def restore(self, deadline: Deadline) -> None:
        """Give the phone back the input method that it had; nothing where it was kept.

        Raises:
            DeviceError: the phone failed.
        """
        old, self._old = self._old, None
        if old is not None:
            self._run([("ime", "reset") if old in _NONE else ("ime", "set", old)], deadline)

    def _check(self, text: str) -> None:
        if "\0" in text:
            raise DeviceError(f"{self._serial}: a NUL cannot be typed")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DeviceError(f"{self._serial}: half a character cannot be typed") from error

    def _ask(self, deadline: Deadline) -> str:
        (result,) = self._run([_CHOSEN], deadline)
        return result.output.strip()

    def _choose(self, text: str, old: str, deadline: Deadline) -> None:
        self._run([("ime", "enable", ADB_KEYBOARD), ("ime", "set", ADB_KEYBOARD)], deadline)
        if self._ask(deadline) != ADB_KEYBOARD:
            raise DeviceError(
                f"{self._serial}: {text[:40]!r} is more than printable ASCII, and the phone has "
                "no input method that types it. Install ADBKeyboard (adb install "
                "ADBKeyboard.apk): it is chosen while it is needed and put back at the end."
            )
        self._old = old
        log.info("%s: typing through ADBKeyboard, in the place of %s", self._serial, old)
        self._wait_until_bound(deadline)

    def _wait_until_bound(self, deadline: Deadline) -> None:
        """A text that is sent before the input method runs is lost without a word."""
        while "mBoundToMethod=false" in self._run([_BOUND], deadline)[0].output:
            try:
                time.sleep(min(_POLL_S, deadline.left_s()))
            except TimeoutError:
                raise DeviceError(f"{self._serial}: ADBKeyboard does not start") from None


def input_text(text: str) -> list[Command]:
    """Commands that type printable ASCII."""
    # %s means a space to `input`; a literal %s only arrives in two pieces.
    pieces = text.replace("%s", "%\0s").split("\0")
    return [("input", "text", piece.replace(" ", "%s")) for piece in pieces if piece]


def broadcasts(text: str) -> list[Command]:
    """Commands that have ADBKeyboard type any text, piece by piece."""
    return [
        ("am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", _encoded(text[at : at + _PIECE]))
        for at in range(0, len(text), _PIECE)
    ]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
