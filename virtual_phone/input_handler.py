"""Input of a phone: touches, keys, and text from ADBKeyboard, which types arbitrary text.

ADBKeyboard is an input method that listens to broadcasts: https://github.com/senzhk/ADBKeyBoard
"""

import base64
import binascii
import time
from collections.abc import Mapping

from virtual_phone.device_state import DeviceState
from virtual_phone.phone_display import PhoneDisplay
from virtual_phone.system import system_screens
from virtual_phone.system.phone_settings import ADB_KEYBOARD

_MAX_CHARACTERS = 100_000
_SLOP = 8.0
"""Distance in pixels that a finger may move during a tap."""
_LONG_PRESS_MS = 400
"""Duration from which a touch is no longer a tap."""
_KEYS = {
    3: "HOME", 4: "BACK", 5: "CALL", 6: "ENDCALL", 19: "DPAD_UP", 20: "DPAD_DOWN",
    21: "DPAD_LEFT", 22: "DPAD_RIGHT", 23: "DPAD_CENTER", 24: "VOLUME_UP", 25: "VOLUME_DOWN",
    26: "POWER", 27: "CAMERA", 28: "CLEAR", 55: "COMMA", 56: "PERIOD", 57: "ALT_LEFT",
    59: "SHIFT_LEFT", 61: "TAB", 62: "SPACE", 66: "ENTER", 67: "DEL", 82: "MENU",
    83: "NOTIFICATION", 84: "SEARCH", 85: "MEDIA_PLAY_PAUSE", 92: "PAGE_UP", 93: "PAGE_DOWN",
    111: "ESCAPE", 112: "FORWARD_DEL", 113: "CTRL_LEFT", 122: "MOVE_HOME", 123: "MOVE_END",
    164: "VOLUME_MUTE", 187: "APP_SWITCH", 223: "SLEEP", 224: "WAKEUP", 277: "CUT", 278: "COPY",
    279: "PASTE",
    **{7 + digit: str(digit) for digit in range(10)},
    **{29 + letter: chr(ord("A") + letter) for letter in range(26)},
}  # fmt: skip


class InputHandler:
    """Applies touches, keys and text to one phone."""

    def __init__(self, phone: DeviceState, display: PhoneDisplay) -> None:
        self._phone = phone
        self._display = display
        self._down: tuple[float, float, float] | None = None
        """Position and time at which the finger went down; None while no finger is down."""

    def touch(self, px: float, py: float) -> None:
        """Tap a pixel of the screen."""
        phone = self._phone
        x, y = phone.geometry.in_area(px, py)
        if phone.is_hidden:
            return
        if phone.dialog is not None:
            outcome = phone.dialog.pressed(x, y)
            if outcome is not None:
                phone.end_dialog(outcome)
        elif self._display.shown.front is None:
            tile = system_screens.tile_at(x, y, len(phone.tasks.apps))
            if tile is not None:
                phone.tasks.bring_to_front(list(phone.tasks.apps)[tile])
        else:
            self._feed(*(("status_bar",) if y < 0 else ("touch", x, y)))

    def swipe(self, start: tuple[float, float], end: tuple[float, float], ms: int) -> None:
        """Swipe between two pixels of the screen; swiping up unlocks the lock screen."""
        phone = self._phone
        (x1, y1), (x2, y2) = phone.geometry.in_area(*start), phone.geometry.in_area(*end)
        if phone.power.awake and phone.power.locked and y2 < y1:
            phone.unlock()
        elif phone.is_hidden or phone.dialog is not None:
            return
        elif min(y1, y2) < 0:
            self._feed("status_bar")
        else:
            self._feed("swipe", x1, y1, x2, y2, ms)

    def move(self, what: str, px: float, py: float) -> None:
        """Handle a motion event: `DOWN`, `MOVE`, `UP` or `CANCEL`."""
        if what == "DOWN":
            self._down = px, py, time.monotonic()
        elif what == "UP" and self._down is not None:
            (start_x, start_y, start_s), self._down = self._down, None
            is_real = self._phone.tempo == "real"
            ms = round((time.monotonic() - start_s) * 1000) if is_real else 0
            if abs(px - start_x) + abs(py - start_y) <= _SLOP and ms < _LONG_PRESS_MS:
                self.touch(start_x, start_y)
            else:
                self.swipe((start_x, start_y), (px, py), ms)
        elif what == "CANCEL":
            self._down = None

    def key(self, code: str) -> None:
        """Press a key such as `KEYCODE_BACK`; the phone handles keys that the app ignores."""
        phone = self._phone
        if code in ("KEYCODE_POWER", "KEYCODE_SLEEP", "KEYCODE_WAKEUP"):
            self._switch(code)
        elif code == "KEYCODE_ENDCALL":
            self._end_call()
        elif phone.is_hidden:
            if code == "KEYCODE_MENU":
                phone.unlock()
        elif code == "KEYCODE_HOME":
            self._go_home()
        elif phone.dialog is not None:
            if code == "KEYCODE_BACK" and phone.dialog.yields_to_back:
                phone.end_dialog()
        elif code == "KEYCODE_BACK":
            self._go_back()
        else:
            self._feed("key", code)

    def text(self, text: str) -> None:
        """Type text into an app that has a `text` method."""
        if not self._phone.is_hidden and self._phone.dialog is None:
            self._feed("text", text)

    def clear_text(self) -> None:
        """Delete typed text in an app that has a `clear_text` method."""
        if not self._phone.is_hidden and self._phone.dialog is None:
            self._feed("clear_text")

    def receive_broadcast(self, action: str, extras: Mapping[str, str]) -> None:
        """Deliver a broadcast to ADBKeyboard while it is the selected input method."""
        phone = self._phone
        chosen = phone.settings.get("secure", "default_input_method")
        if chosen != ADB_KEYBOARD or phone.faults.get("input"):
            return
        if action == "ADB_CLEAR_TEXT":
            self.clear_text()
        elif action in ("ADB_INPUT_CODE", "ADB_EDITOR_CODE"):
            code = extras.get("code", "")
            if code.isascii() and code.isdecimal():
                self.key(key_code(code))
        elif text := _text(action, extras):
            self.text(text[:_MAX_CHARACTERS])

    def _end_call(self) -> None:
        """Hang up, or turn the screen off if there is no call."""
        dialog = self._phone.dialog
        if dialog is not None and dialog.kind == "call":
            self._phone.end_dialog()
        else:
            self._switch("KEYCODE_SLEEP")

    def _switch(self, code: str) -> None:
        awake = self._phone.power.awake
        if code == "KEYCODE_SLEEP" or (code == "KEYCODE_POWER" and awake):
            self._phone.sleep()
        else:
            self._phone.wake()

    def _go_home(self) -> None:
        phone = self._phone
        if phone.dialog is not None and phone.dialog.yields_to_home:
            phone.dialog = None  # do not show the app below
            phone.faults.forget("dialog")
        phone.tasks.feed(("home",), phone.tasks.front)  # ignored by apps, but counts as a touch
        phone.tasks.go_home()

    def _go_back(self) -> None:
        tasks = self._phone.tasks
        front = tasks.front
        if front is None:
            return
        used = tasks.feed(("key", "KEYCODE_BACK"), front)
        if used or tasks.front != front:
            self._display.show_later()
        else:
            tasks.back()

    def _feed(self, *event: object) -> None:
        """Feed the visible app, even if another app is about to cover it."""
        phone = self._phone
        if self._display.shown.front is not None:
            phone.tasks.feed(event, self._display.shown.front)
            self._display.show_later()


def _text(action: str, extras: Mapping[str, str]) -> str:
    """Return the text that a broadcast types."""
    message = extras.get("msg", "")
    try:
        if action == "ADB_INPUT_TEXT":
            return message
        if action == "ADB_INPUT_B64":
            return base64.b64decode(message).decode("utf-8", "replace")
        if action == "ADB_INPUT_CHARS":
            return "".join(chr(int(code)) for code in extras.get("chars", "").split(","))
    except (binascii.Error, ValueError, OverflowError):
        pass  # the real keyboard logs an exception and continues
    return ""


def key_code(key: str) -> str:
    """Return the full name of a key: `KEYCODE_BACK` for `4` or `BACK`."""
    if key.isascii() and key.isdecimal() and len(key) < 6:
        return f"KEYCODE_{_KEYS.get(int(key), key)}"
    name = key.upper().removeprefix("KEYCODE_")
    if not (name.isascii() and name.replace("_", "").isalnum() and len(name) < 40):
        raise ValueError(f"unknown key {key[:40]!r}")
    return f"KEYCODE_{name}"
