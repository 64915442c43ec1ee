"""The size of a phone's screen, and whether a picture can be of it."""

import re
from collections.abc import Callable

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

DISPLAY = ("dumpsys", "display")
"""The command that tells how the screen is turned."""
_ORIENTATION = re.compile(r"(?:mCurrentOrientation|orientation)=(\d)")
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")


def orientation_in(display: str) -> int:
    """Quarter turns of the screen, 0 to 3, out of the output of `DISPLAY`; 0 if it names none."""
    found = _ORIENTATION.search(display)
    return int(found[1]) % 4 if found else 0


class ScreenSize:
    """What is known of a screen's size; asked for when it is needed."""

    def __init__(
        self,
        serial: str,
        ask: Callable[[Deadline], str],
        display: Callable[[Deadline], str],
    ) -> None:
        """Asks the phone nothing yet.

        Args:
            serial: for messages.
            ask: gives what `wm size` says.
            display: gives what `DISPLAY` says.
        """
        self._serial = serial
        self._ask = ask
        self._display = display
        self._now: tuple[int, int] | None = None
        self._possible: frozenset[tuple[int, ...]] = frozenset()

    def now(self, deadline: Deadline) -> tuple[int, int]:
        """Width and height in pixels, as the last picture had them; before it, as they are turned.

        Raises:
            DeviceError: the phone does not tell.
        """
        if self._now is None:
            upright = self._learn(deadline)
            if upright is None:
                raise DeviceError(f"{self._serial}: wm size names no size")
            turned = orientation_in(self._display(deadline)) % 2
            self._now = upright[::-1] if turned else upright
        return self._now

    def check(self, picture: Image, deadline: Deadline) -> None:
        """See whether a picture can be of this screen, upright or turned.

        Raises:
            CaptureError: it is of another size.
        """
        height, width = picture.shape[:2]
        size = (min(width, height), max(width, height))
        if size not in self._possible:
            self._now = self._learn(deadline)  # it may have been changed
        if self._possible and size not in self._possible:
            known = " or ".join(f"{short}x{long}" for short, long in sorted(self._possible))
            raise CaptureError(
                f"{self._serial}: a picture of {width}x{height} of a screen of {known}"
            )
        self._now = (width, height)

    def _learn(self, deadline: Deadline) -> tuple[int, int] | None:
        """Which sizes are possible, and the one that holds, of the phone held upright."""
        found = {m[1]: (int(m[2]), int(m[3])) for m in _SIZE.finditer(self._ask(deadline))}
        self._possible = frozenset((min(pair), max(pair)) for pair in found.values())
        return found.get("Override", found.get("Physical"))
