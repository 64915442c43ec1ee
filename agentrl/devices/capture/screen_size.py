"""The size of a phone's screen, and the check of captures against it."""

import re
from collections.abc import Callable

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

DISPLAY = ("dumpsys", "display")
"""The command that prints the rotation of the screen."""
_ORIENTATION = re.compile(r"(?:mCurrentOrientation|orientation)=(\d)")
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")


def orientation_in(display: str) -> int:
    """Quarter turns of the screen, 0 to 3, from the output of `DISPLAY`; 0 if it has none."""
    found = _ORIENTATION.search(display)
    return int(found[1]) % 4 if found else 0


class ScreenSize:
    """The size of a screen, read from the phone when it is needed."""

    def __init__(
        self,
        serial: str,
        ask: Callable[[Deadline], str],
        display: Callable[[Deadline], str],
    ) -> None:
        """Does not contact the phone yet.

        Args:
            serial: for messages.
            ask: returns the output of `wm size`.
            display: returns the output of `DISPLAY`.
        """
        self._serial = serial
        self._ask = ask
        self._display = display
        self._now: tuple[int, int] | None = None
        self._possible: frozenset[tuple[int, ...]] = frozenset()

    def now(self, deadline: Deadline) -> tuple[int, int]:
        """Width and height in pixels: of the last capture, else as the phone is rotated.

        Raises:
            DeviceError: the phone does not report its size.
        """
        if self._now is None:
            upright = self._read(deadline)
            if upright is None:
                raise DeviceError(f"{self._serial}: wm size printed no size")
            turned = orientation_in(self._display(deadline)) % 2
            self._now = upright[::-1] if turned else upright
        return self._now

    def check(self, picture: Image, deadline: Deadline) -> None:
        """Check that a capture has the size of this screen, upright or rotated.

        Raises:
            CaptureError: it has another size.
        """
        height, width = picture.shape[:2]
        size = (min(width, height), max(width, height))
        if size not in self._possible:
            self._now = self._read(deadline)  # it may have been changed
        if self._possible and size not in self._possible:
            known = " or ".join(f"{short}x{long}" for short, long in sorted(self._possible))
            raise CaptureError(
                f"{self._serial}: the capture is {width}x{height}, but the screen is {known}"
            )
        self._now = (width, height)

    def _read(self, deadline: Deadline) -> tuple[int, int] | None:
        """Read the possible sizes; returns the current one, of the phone held upright."""
        sizes = {m[1]: (int(m[2]), int(m[3])) for m in _SIZE.finditer(self._ask(deadline))}
        self._possible = frozenset((min(pair), max(pair)) for pair in sizes.values())
        return sizes.get("Override", sizes.get("Physical"))
