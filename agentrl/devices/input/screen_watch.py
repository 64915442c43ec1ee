"""Looking at a screen again and again until it has come to rest."""

import logging
import time

from agentrl.devices.device import Device
from agentrl.devices.screen_regions import Comparison, restless
from agentrl.errors import CaptureError, DeviceTimeout
from agentrl.types import Image

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.012


class Watch:
    """The captures of one settling and their deadline."""

    def __init__(
        self,
        device: Device,
        before: Image,
        settle_s: float,
        *,
        comparison: Comparison,
        min_captures: int = 2,
    ) -> None:
        """Start the clock.

        Args:
            device: the phone.
            before: the screen before the action.
            settle_s: deadline of the whole.
            comparison: tells whether two captures show the same.
            min_captures: so many are taken at least.
        """
        self.device = device
        self.before = before
        self.settle_s = settle_s
        self.captures = 0
        self.effect_s: float | None = None
        """From the start to the first capture that differs from `before`; None if none did."""
        self._same = comparison.same
        self._min_captures = min_captures
        self._start = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def capture(self) -> Image:
        """One more look; a capture that fails is taken again while there is time.

        Raises:
            CaptureError: none came.
        """
        self.captures += 1
        frame = self._try()
        while frame is None:
            self.pause("")
            frame = self._try()
        if self.effect_s is None and self.differs(frame):
            self.effect_s = self.past_s()
        return frame

    def differs(self, frame: Image) -> bool:
        """Whether a capture shows something else than the screen before."""
        return not self._same(self.before, frame)

    def until_still(self, frame: Image, *, or_last: bool = False) -> Image:
        """The first capture that agrees with the one before it; or the last one in time."""
        while True:
            following = self.capture()
            still = self.captures >= self._min_captures and self._same(frame, following)
            if still or (or_last and self.past_s() >= self.settle_s):
                return following
            self.pause(f"{self.device.serial}: the screen did not stand still")
            frame = following

    def until_changed_and_still(self, *, or_last: bool = False) -> Image:
        """As `until_still`, of a changed screen; the unchanged one if none comes in time."""
        frame = self.capture()
        while self.effect_s is None:
            if self.past_s() >= self.settle_s:
                return frame
            self.pause("")
            frame = self.capture()
        return self.until_still(frame, or_last=or_last)

    def until_quiet(self, frame: Image, quiet_s: float) -> Image:
        """The screen when it has stood still so long; as it is at the deadline if it never does.

        Args:
            frame: at rest.
            quiet_s: in which a second effect may follow the first.
        """
        end_s = self.past_s() + quiet_s
        while self.past_s() < min(end_s, self.settle_s):
            self.pause("")
            following = self.capture()
            if not self._same(frame, following):
                following = self.until_still(following, or_last=True)
                end_s = self.past_s() + quiet_s
            frame = following
        return frame

    def pause(self, complaint: str) -> None:
        """A short pause before looking again, a little longer each time.

        Raises:
            DeviceTimeout: the deadline has passed and there is a complaint.
        """
        if complaint and self.past_s() >= self.settle_s:
            raise DeviceTimeout(f"{complaint} within {self.settle_s:g} s")
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)

    def _try(self) -> Image | None:
        try:
            return self.device.screenshot()
        except CaptureError as error:
            if self.past_s() >= self.settle_s:
                raise
            log.info("%s", error)  # black between two windows, or cut off with a connection
            return None

    def past_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start


def without_what_moves(
    device: Device, before: Image, comparison: Comparison, watch_s: float
) -> Comparison:
    """The comparison, without the small regions that change while nobody does anything.

    Raises:
        DeviceError: the phone failed.
    """
    if watch_s <= 0:
        return comparison
    end_s, pictures = time.monotonic() + watch_s, [before]
    while time.monotonic() < end_s:
        pictures.append(device.screenshot())
        time.sleep(_LONGEST_PAUSE_S)
    return comparison.without(restless(pictures))
