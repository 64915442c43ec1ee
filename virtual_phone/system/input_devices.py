"""The phone's input devices as the kernel sees them: buttons and touchscreen."""

from dataclasses import dataclass

from virtual_phone.system.screen_geometry import ScreenGeometry

BUTTONS, TOUCHSCREEN = "/dev/input/event0", "/dev/input/event1"
TOUCHSCREEN_NAME = "virtual_touchscreen"
_LAST_SLOT, _MAX_ID = 9, 65_535
_SYN, _KEY, _ABS = 0, 1, 3
_SYN_REPORT = 0
_SLOT, _POSITION_X, _POSITION_Y, _TRACKING_ID, _PRESSURE = 0x2F, 0x35, 0x36, 0x39, 0x3A
_KEYS = {114: "VOLUME_DOWN", 115: "VOLUME_UP", 116: "POWER"}
"""Android keys by kernel key code."""

Motion = tuple[str, float, float]
"""`DOWN`, `MOVE` or `UP`, and the pixel of the screen."""


@dataclass(slots=True, kw_only=True, frozen=True)
class InputDevice:
    """An input device of the phone, as `getevent` lists it."""

    path: str
    name: str
    keys: tuple[tuple[int, str], ...]
    axes: tuple[tuple[int, str, int], ...] = ()
    """Code, name and maximum of each axis."""


def input_devices(size: tuple[int, int]) -> list[InputDevice]:
    """Return the buttons, and a touchscreen with one unit per pixel of the upright screen."""
    width, height = size
    buttons = ((114, "KEY_VOLUMEDOWN"), (115, "KEY_VOLUMEUP"), (116, "KEY_POWER"))
    axes = (
        (_SLOT, "ABS_MT_SLOT", _LAST_SLOT),
        (_POSITION_X, "ABS_MT_POSITION_X", width - 1),
        (_POSITION_Y, "ABS_MT_POSITION_Y", height - 1),
        (_TRACKING_ID, "ABS_MT_TRACKING_ID", _MAX_ID),
        (_PRESSURE, "ABS_MT_PRESSURE", 255),
    )
    touch = ((0x14A, "BTN_TOUCH"),)
    return [
        InputDevice(path=BUTTONS, name="gpio-keys", keys=buttons),
        InputDevice(path=TOUCHSCREEN, name=TOUCHSCREEN_NAME, keys=touch, axes=axes),
    ]


@dataclass(slots=True)
class _Contact:
    """A finger in a slot of the touchscreen; its tracking id is -1 while it is lifted."""

    tracking_id: int = -1
    x: int = 0
    y: int = 0


class InputDrivers:
    """Handles events of both devices, which take effect at the next `SYN_REPORT`.

    The touchscreen speaks multitouch protocol B:
    https://docs.kernel.org/input/multi-touch-protocol.html. Apps only see the first finger.
    """

    def __init__(self, geometry: ScreenGeometry) -> None:
        self._geometry = geometry
        self._slots = [_Contact() for _ in range(_LAST_SLOT + 1)]
        self._slot = 0
        self._touching: tuple[int, int] | None = None
        """Slot and tracking id of the finger that apps see."""
        self._last = (0.0, 0.0)
        self._pressed: list[str] = []

    def press(self, kind: int, code: int, value: int) -> list[str]:
        """Handle an event of the buttons; return the keys it presses."""
        if kind == _KEY and code in _KEYS and value == 1:
            self._pressed.append(_KEYS[code])
        if (kind, code) != (_SYN, _SYN_REPORT):
            return []
        pressed, self._pressed = self._pressed, []
        return pressed

    def touch(self, kind: int, code: int, value: int) -> list[Motion]:
        """Handle an event of the touchscreen; return the motions it completes."""
        if (kind, code) == (_SYN, _SYN_REPORT):
            return self._report()
        contact = self._slots[self._slot]
        if kind != _ABS:
            return []
        if code == _SLOT and 0 <= value <= _LAST_SLOT:
            self._slot = value
        elif code == _TRACKING_ID:
            contact.tracking_id = value
        elif code == _POSITION_X:
            contact.x = value
        elif code == _POSITION_Y:
            contact.y = value
        return []

    def _report(self) -> list[Motion]:
        motions: list[Motion] = []
        if self._touching is not None:
            slot, tracking_id = self._touching
            contact = self._slots[slot]
            if contact.tracking_id != tracking_id:
                motions.append(("UP", *self._last))
                self._touching = None
            elif (at := self._geometry.from_panel(contact.x, contact.y)) != self._last:
                self._last = at
                motions.append(("MOVE", *at))
        if self._touching is None:
            down = [(n, c) for n, c in enumerate(self._slots) if c.tracking_id >= 0]
            for number, contact in down[:1]:
                self._touching = number, contact.tracking_id
                self._last = self._geometry.from_panel(contact.x, contact.y)
                motions.append(("DOWN", *self._last))
        return motions
