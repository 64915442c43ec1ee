"""What touches and keys do on a phone."""

from typing import TYPE_CHECKING

from agentrl.virtual_phone.system import drawing

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import VirtualPhone

_SLOP = 8.0
"""Pixels that a finger may move during a tap."""


class InputHandler:
    """Touches and keys of one phone."""

    def __init__(self, phone: "VirtualPhone") -> None:
        """Start without a finger on the screen.

        Args:
            phone: phone to control.
        """
        self._phone = phone
        self._down: tuple[float, float] | None = None

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
        elif phone.shown.front is None:
            tile = drawing.tile_at(x, y, len(phone.tasks.apps))
            if tile is not None:
                phone.tasks.launch(list(phone.tasks.apps)[tile], {})
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
        """One motion event: `DOWN`, `MOVE`, `UP` or `CANCEL`.

        Raises:
            ValueError: it is not one of them.
        """
        if what == "DOWN":
            self._down = (px, py)
        elif what == "UP" and self._down is not None:
            (start_x, start_y), self._down = self._down, None
            if abs(px - start_x) + abs(py - start_y) <= _SLOP:
                self.touch(start_x, start_y)
            else:
                self.swipe((start_x, start_y), (px, py), 0)
        elif what == "CANCEL":
            self._down = None
        elif what not in ("MOVE", "UP"):
            raise ValueError(f"Unknown motion event: {what}")

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

    def _end_call(self) -> None:
        """Hang up; without a call, the key turns the screen off."""
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
        if phone.dialog is not None and phone.dialog.yields_to_back:
            phone.end_dialog()
        phone.tasks.feed(("home",), phone.tasks.front)  # apps ignore it, but it counts as a touch
        phone.tasks.go_home()

    def _go_back(self) -> None:
        tasks = self._phone.tasks
        front = tasks.front
        if front is None:
            return
        used = tasks.feed(("key", "KEYCODE_BACK"), front)
        if used or tasks.front != front:
            self._phone.display.later()
        else:
            tasks.back()

    def _feed(self, *event: object) -> None:
        """Feed the app that is visible, even if another one is about to cover it."""
        phone = self._phone
        if phone.shown.front is not None:
            phone.tasks.feed(event, phone.shown.front)
            phone.display.later()
