"""Tests captures on a phone: are they correct, are they fresh, how long do they take?"""

import time
from collections.abc import Callable

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import Capture
from agentrl.devices.capture.image_similarity import images_match
from agentrl.devices.capture.screencap_png import PngCapture
from agentrl.devices.capture.screencap_raw import RawCapture
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

_TRIES = 3
_FRESH_S = 3.0
_POLL_S = 0.01


class CaptureTrial:
    """Tests captures on one phone by comparing each with another one."""

    def __init__(
        self,
        line: DeviceTransport,
        frame_s: float,
        *,
        rounds: int,
        change: Callable[[], None] | None = None,
        within: Deadline | None = None,
    ) -> None:
        """Does not contact the phone yet.

        Args:
            line: to the phone.
            frame_s: deadline of one picture.
            rounds: number of pictures per capture.
            change: changes something on the screen; None does not check freshness.
            within: overall deadline; None for no limit.
        """
        self._transport = line
        self._frame_s = frame_s
        self._rounds = rounds
        self._change = change
        self._within = within
        self._witness: Capture | None = None

    def seconds(self, capture: Capture) -> list[float]:
        """How long each picture of a capture took.

        Raises:
            CaptureError: the capture is wrong or stale on this phone.
            DeviceError: the phone failed.
            TimeoutError: the overall deadline passed before the last picture.
        """
        self._frame(capture)  # the first one may include startup
        seconds = []
        for _ in range(self._rounds):
            start = time.perf_counter()
            self._frame(capture)
            seconds.append(time.perf_counter() - start)
        self._compare(capture)
        if self._change is not None:
            self._check_fresh(capture, self._change)
        return seconds

    def _frame(self, capture: Capture) -> Image:
        if self._within is not None:
            self._within.left_s()
        return capture.frame(Deadline(self._frame_s))

    def _compare(self, capture: Capture) -> None:
        """Check that it shows the same as another capture."""
        witness = self._other(capture)
        if witness is None:
            return
        earlier = self._frame(witness)
        for _ in range(_TRIES):
            shown, later = self._frame(capture), self._frame(witness)
            # The screen may have changed before or after it.
            if images_match(earlier, shown) or images_match(later, shown):
                return
            earlier = later
        raise CaptureError(f"{self._transport.serial}: it does not match other captures")

    def _other(self, capture: Capture) -> Capture | None:
        """A capture to compare with: raw for the others, PNG for raw; None if none works."""
        if self._within is not None and isinstance(capture, RawCapture):
            return None  # a PNG takes seconds on some phones
        if self._witness is None or type(self._witness) is type(capture):
            others: list[Capture] = [RawCapture(self._transport), PngCapture(self._transport)]
            others = [other for other in others if type(other) is not type(capture)]
            self._witness = next((other for other in others if self._works(other)), None)
        return self._witness

    def _works(self, capture: Capture) -> bool:
        try:
            self._frame(capture)
        except DeviceError:
            return False
        return True

    def _check_fresh(self, capture: Capture, change: Callable[[], None]) -> None:
        """Check that a change of the screen shows."""
        before = self._frame(capture)
        change()
        end_s = time.monotonic() + _FRESH_S
        while images_match(before, self._frame(capture)):
            if time.monotonic() >= end_s:
                raise CaptureError(
                    f"{self._transport.serial}: stale: a change did not show within {_FRESH_S:g} s"
                )
            time.sleep(_POLL_S)
