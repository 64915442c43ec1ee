"""One phone's screen: the display that shows apps, its size, and captures."""

import contextlib
import re
import threading
from collections.abc import Callable, Sequence

from agentrl.devices.adb.adb_shells import CommandShell, PersistentShell
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import BytesResult, Command, text_results
from agentrl.devices.capture.capture_method import Capture
from agentrl.devices.capture.screencap import RawCapture
from agentrl.devices.device import CommandResult, Device
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

DISPLAY = ("dumpsys", "display")
"""The command that prints the displays and their rotation."""
_PHYSICAL = ("dumpsys", "SurfaceFlinger", "--display-id")
_PHYSICAL_ID = re.compile(r"^Display (\d+)", re.MULTILINE)
_VIEWPORT = re.compile(r"DisplayViewport\{([^{}]*+)\}")
_UNIQUE_ID = re.compile(r"uniqueId='local:(\d++)'")
_ORIENTATION = re.compile(r"(?:mCurrentOrientation|orientation)=(\d)")
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")


class PhoneScreen:
    """Captures one phone's screen with the current method; thread-safe, unlike the method itself.

    Args:
        transport: transport to the phone, which is not contacted yet.
        ask: runs one of our own commands on the phone and returns the output.
    """

    def __init__(self, transport: DeviceTransport, ask: Callable[[Deadline, Command], str]) -> None:
        self.capture: Capture = RawCapture(transport)
        """Current capture method."""
        self._transport, self._ask = transport, ask
        self._size: tuple[int, int] | None = None
        self._possible: frozenset[tuple[int, ...]] = frozenset()
        """Valid sizes of a capture, each as shorter and longer side."""
        self._lock = threading.Lock()

    def use(self, capture: Capture) -> None:
        """Switch to another capture method."""
        with self._lock:
            self.capture.close()
            self.capture = capture

    def size(self, deadline: Deadline) -> tuple[int, int]:
        """Return the size in pixels of the last capture, or as read from the phone."""
        if self._size is None:
            upright = self._read_size(deadline)
            if upright is None:
                raise DeviceError(f"{self._transport.serial}: wm size printed no size")
            turned = orientation_in(self._ask(deadline, DISPLAY)) % 2
            self._size = upright[::-1] if turned else upright
        return self._size

    def capture_then(
        self, shell: CommandShell, commands: Sequence[Command], deadline: Deadline
    ) -> tuple[Image, list[CommandResult]]:
        """Capture, then run commands if that needs no separate call."""
        with self._lock:
            try:
                picture, rest = None, list[BytesResult]()
                if (found := self._run(shell, (), commands, deadline)) is not None:
                    (printed, _), *rest = found
                    picture = self.capture.parse(printed)
                if picture is None:
                    picture, rest = self.capture.frame(deadline), []
            except CaptureError as error:
                if gone := self._transport.gone_after(error):
                    raise gone from error
                raise
            self._check_size(picture, deadline)
        picture.flags.writeable = False
        return picture, text_results(rest)

    def run_then_capture(
        self, shell: CommandShell, commands: Sequence[Command], deadline: Deadline
    ) -> tuple[list[CommandResult], Image | None]:
        """Run commands, then capture if that succeeds and needs no separate call."""
        picture = None
        with self._lock:
            found = self._run(shell, commands, (), deadline)
            # Fewer results mean that a gate failed, which ended the script before the capture.
            if found is not None and len(found) > len(commands):
                with contextlib.suppress(CaptureError):  # the next capture will raise the error
                    picture = self.capture.parse(found.pop()[0])
                    if picture is not None:
                        self._check_size(picture, deadline)
        if found is None:
            return shell.run(commands, deadline), None
        return text_results(found), picture

    def close(self) -> None:
        """Release the resources of the captures."""
        self.capture.close()

    def _run(
        self,
        shell: CommandShell,
        before: Sequence[Command],
        after: Sequence[Command],
        deadline: Deadline,
    ) -> list[BytesResult] | None:
        """Run commands and a capture in one call; None if that is impossible."""
        command = self.capture.command
        if command is None or not isinstance(shell, PersistentShell):
            return None
        return shell.outputs((*before, command, *after), deadline)

    def _check_size(self, picture: Image, deadline: Deadline) -> None:
        """Check that a capture has the size of this screen, upright or rotated."""
        height, width = picture.shape[:2]
        size = (min(width, height), max(width, height))
        if size not in self._possible:
            self._size = self._read_size(deadline)  # the size may have been changed
        if self._possible and size not in self._possible:
            known = " or ".join(f"{short}x{long}" for short, long in sorted(self._possible))
            raise CaptureError(
                f"{self._transport.serial}: the capture is {width}x{height}, but the screen is "
                f"{known}"
            )
        self._size = (width, height)

    def _read_size(self, deadline: Deadline) -> tuple[int, int] | None:
        """Read the valid sizes; return the current size of the phone held upright."""
        printed = self._ask(deadline, ("wm", "size"))
        sizes = {m[1]: (int(m[2]), int(m[3])) for m in _SIZE.finditer(printed)}
        # With a size override, screencap may return either size, as some phones scale afterwards.
        self._possible = frozenset((min(pair), max(pair)) for pair in sizes.values())
        return sizes.get("Override", sizes.get("Physical"))


def orientation_in(display: str) -> int:
    """Parse the screen's quarter turns, 0 to 3, from the output of `DISPLAY`; 0 if missing."""
    found = _ORIENTATION.search(display)
    return int(found[1]) % 4 if found else 0


def read_display_id(device: Device) -> str:
    """Read the id of the display that shows apps, for `screencap -d`; "" if there is only one.

    Without an id, `screencap` captures the first display, which may be the dark one on a phone
    that folds or has a cover screen.
    """
    physical, display = device.batch(_PHYSICAL, DISPLAY)
    if len(set(_PHYSICAL_ID.findall(physical.output))) < 2:
        return ""
    # Apps are started on logical display 0; its viewport names the physical display.
    for viewport in _VIEWPORT.findall(display.output):
        if " displayId=0," in viewport and (found := _UNIQUE_ID.search(viewport)):
            return str(found[1])
    return ""
