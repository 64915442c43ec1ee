"""Captures a screen repeatedly until it has settled."""

import logging
import time

from agentrl.devices.device import Device
from agentrl.devices.screen_regions import ScreenComparison
from agentrl.errors import CaptureError, DeviceTimeout
from agentrl.types import Image

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.012


class ScreenWatch:
    """The captures of one wait for the screen to settle, and its deadline."""

    def __init__(
        self,
        device: Device,
        before: Image,
        settle_s: float,
        *,
        comparison: ScreenComparison,
        min_captures: int = 2,
        asks_front: bool = False,
    ) -> None:
        """Start the clock."""
        self.device = device
        self.before = before
        self.settle_s = settle_s
        self.captures = 0
        self.effect_s: float | None = None
        """Seconds from the start to the first capture that differs from `before`; None if none
        does."""
        self._same = comparison.matches
        self.next_capture: Image | None = None
        """A capture that has been made already, since the start."""
        self.is_still = True
        """Whether the last wait for the screen to rest ended with two equal captures."""
        self.front: str | None = None
        """The package in front right after the last capture, if that is known."""
        # Captures that may be the last ask for the package in front as well, if that is wanted.
        self._min_captures = min_captures
        self._asks_front = asks_front
        self._start = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def capture(self) -> Image:
        """One more capture, retried on failure until the deadline."""
        self.captures += 1
        frame = self._try()
        while frame is None:
            self.pause("")
            frame = self._try()
        if self.effect_s is None and self.differs(frame):
            self.effect_s = self.elapsed_s()
        return frame

    def differs(self, frame: Image) -> bool:
        """Whether a capture differs from the screen before the action."""
        return not self._same(self.before, frame)

    def until_still(self, frame: Image, *, or_last: bool = False) -> Image:
        """The first capture equal to the previous one; with `or_last`, else the last in time."""
        while True:
            following = self.capture()
            still = self.captures >= self._min_captures and self._same(frame, following)
            if still or (or_last and self.elapsed_s() >= self.settle_s):
                self.is_still = still
                return following
            self.pause(f"{self.device.serial}: the screen did not settle")
            frame = following

    def until_changed_and_still(self, *, or_last: bool = False) -> Image:
        """Wait until the screen changes and is still; give up if it does not change in time."""
        frame = self.capture()
        while self.effect_s is None:
            if self.elapsed_s() >= self.settle_s:
                return frame
            self.pause("")
            frame = self.capture()
        return self.until_still(frame, or_last=or_last)

    def until_quiet(self, frame: Image, quiet_s: float) -> Image:
        """The screen once it has not changed for `quiet_s`, or at the deadline."""
        end_s = self.elapsed_s() + quiet_s
        while self.elapsed_s() < min(end_s, self.settle_s):
            self.pause("")
            following = self.capture()
            # A further effect starts the wait again.
            if not self._same(frame, following):
                following = self.until_still(following, or_last=True)
                end_s = self.elapsed_s() + quiet_s
            frame = following
        return frame

    def pause(self, failure: str) -> None:
        """Pause before the next capture; past the deadline, raise a failure that is not empty."""
        if failure and self.elapsed_s() >= self.settle_s:
            raise DeviceTimeout(f"{failure} within {self.settle_s:g} s")
        time.sleep(self._pause_s)
        # Most effects come within a few milliseconds; polling for a late one must not cost much.
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)

    def _try(self) -> Image | None:
        may_be_last = self._asks_front and self.captures >= self._min_captures
        made, self.next_capture, self.front = self.next_capture, None, None
        try:
            if may_be_last:
                frame, self.front = self.device.screenshot_and_front()
                return frame
            return self.device.screenshot() if made is None else made
        except CaptureError as error:
            if self.elapsed_s() >= self.settle_s:
                raise
            log.info("%s", error)  # black during a transition, or a connection was lost
            return None

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start
