"""A capture is tried out: is it right, is it fresh, how long does it take?"""

import time
from collections.abc import Callable

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import Line
from agentrl.devices.capture.capture_method import Capture
from agentrl.devices.capture.image_similarity import alike
from agentrl.devices.capture.screencap_png import PngCapture
from agentrl.devices.capture.screencap_raw import RawCapture
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

_TRIES = 3
_FRESH_S = 3.0
_POLL_S = 0.01


class Trial:
    """Tries captures of one phone out, each compared with another that was found right."""

    def __init__(
        self,
        line: Line,
        frame_s: float,
        *,
        rounds: int,
        change: Callable[[], None] | None = None,
        within: Deadline | None = None,
    ) -> None:
        """Asks the phone nothing yet.

        Args:
            line: to the phone.
            frame_s: that one picture may take.
            rounds: of each capture.
            change: changes something on the screen; None leaves freshness open.
            within: of all that is tried; None takes the time that it takes.
        """
        self._line = line
        self._frame_s = frame_s
        self._rounds = rounds
        self._change = change
        self._within = within
        self._witness: Capture | None = None

    def seconds(self, capture: Capture) -> list[float]:
        """How long each of its pictures took.

        Raises:
            CaptureError: it is wrong or stale on this phone.
            DeviceError: the phone failed.
            TimeoutError: the time was over before the last picture.
        """
        self._frame(capture)  # the first may have to start something
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
        """See whether it shows the same as another capture does."""
        witness = self._other(capture)
        if witness is None:
            return
        earlier = self._frame(witness)
        for _ in range(_TRIES):
            shown, later = self._frame(capture), self._frame(witness)
            # The screen may have changed before it or after it.
            if alike(earlier, shown) or alike(later, shown):
                return
            earlier = later
        raise CaptureError(f"{self._line.serial}: it shows something else than other captures")

    def _other(self, capture: Capture) -> Capture | None:
        """A capture to compare with: raw for all others, PNG for raw; None if none works."""
        if self._within is not None and isinstance(capture, RawCapture):
            return None  # a PNG takes seconds on some phones
        if self._witness is None or type(self._witness) is type(capture):
            others: list[Capture] = [RawCapture(self._line), PngCapture(self._line)]
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
        """See whether a change of the screen shows."""
        before = self._frame(capture)
        change()
        end_s = time.monotonic() + _FRESH_S
        while alike(before, self._frame(capture)):
            if time.monotonic() >= end_s:
                raise CaptureError(
                    f"{self._line.serial}: it is stale: a change did not show in {_FRESH_S:g} s"
                )
            time.sleep(_POLL_S)
