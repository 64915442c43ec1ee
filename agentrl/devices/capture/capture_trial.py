"""Tests captures on a phone: correctness, freshness and duration, and the lag of a stream."""

import contextlib
import threading
import time
from collections.abc import Callable

from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import Capture, StreamingCapture
from agentrl.devices.capture.picture_checks import images_match
from agentrl.devices.capture.screencap import PngCapture, RawCapture
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

_TRIES = 3
_FRESH_S = 3.0
_POLL_S = 0.01
_LAG_MARGIN = 1.5
_LEAST_LAG_S = 0.03
_STREAM_POLL_S = 0.002


class CaptureTrial:
    """Tests captures on one phone by comparing each with another capture."""

    def __init__(
        self,
        transport: DeviceTransport,
        frame_s: float,
        *,
        rounds: int,
        change: Callable[[], None] | None = None,
        repeat_s: float = float("inf"),
    ) -> None:
        """Prepare a trial; the phone is not contacted yet.

        Args:
            transport: transport to the phone.
            frame_s: deadline of one picture.
            rounds: number of pictures per capture.
            change: changes something on the screen; None skips the freshness check.
            repeat_s: seconds for which captures are repeated; each is tested at least once,
                however long that takes.
        """
        self._transport = transport
        self._frame_s = frame_s
        self._rounds = rounds
        self._change = change
        self._repeats = Deadline(repeat_s)
        self._brief = repeat_s < float("inf")
        self._reference: Capture | None = None
        self._raw: Image | None = None
        """Raw capture kept for all comparisons, if the time for repeats is limited."""
        self._failed: set[type[Capture]] = set()

    def seconds(self, capture: Capture) -> list[float]:
        """Return the seconds that each picture of a capture took."""
        seconds = []
        try:
            for number in range(self._rounds + 1):
                if number and self._repeats.has_passed:
                    break
                start = time.perf_counter()
                shown = self._frame(capture)
                seconds.append(time.perf_counter() - start)
        except DeviceError:
            self._failed.add(type(capture))
            raise
        # The first picture may include startup; it counts only if there was no time for more.
        seconds = seconds[1:] or seconds
        self._compare(capture, shown)
        if self._change is not None:
            self._check_fresh(capture, self._change)
        return seconds

    def _frame(self, capture: Capture) -> Image:
        return capture.frame(Deadline(self._frame_s))

    def _compare(self, capture: Capture, shown: Image) -> None:
        """Check that a picture matches other captures of the screen."""
        # Over a slow link a raw picture takes seconds, so keep one for all comparisons.
        if self._brief and isinstance(capture, RawCapture):
            self._raw = shown
            return
        if self._raw is not None and images_match(self._raw, shown):
            return  # a static screen needs no second raw picture, which takes long over a slow link
        reference = self._other(capture)
        if reference is None:
            return
        earlier = self._frame(reference)
        for _ in range(_TRIES):
            shown, later = self._frame(capture), self._frame(reference)
            # The screen may have changed before or after this picture.
            if images_match(earlier, shown) or images_match(later, shown):
                return
            earlier = later
        raise CaptureError(f"{self._transport.serial}: the picture does not match other captures")

    def _other(self, capture: Capture) -> Capture | None:
        """Return a picture to compare with: PNG for a raw capture, else raw; None if none works."""
        if self._reference is not None and type(self._reference) is not type(capture):
            return self._reference
        self._reference = None
        for other in (RawCapture(self._transport), PngCapture(self._transport)):
            # A capture that has failed before may take seconds to fail again.
            if type(other) is type(capture) or type(other) in self._failed:
                continue
            with contextlib.suppress(DeviceError):
                self._frame(other)
                self._reference = other
                break
        return self._reference

    def _check_fresh(self, capture: Capture, change: Callable[[], None]) -> None:
        """Check that captures show a change of the screen."""
        before = self._frame(capture)
        change()
        end_s = time.monotonic() + _FRESH_S
        while images_match(before, self._frame(capture)):
            if time.monotonic() >= end_s:
                raise CaptureError(
                    f"{self._transport.serial}: captures are stale; a screen change was still not "
                    f"visible after {_FRESH_S:g} s"
                )
            time.sleep(_POLL_S)


def measure_lag_s(
    transport: DeviceTransport,
    stream: StreamingCapture,
    change: Callable[[], None],
    rounds: int,
    deadline: Deadline,
) -> float:
    """Return the largest lag of a stream behind raw captures, plus a margin."""
    stream.frame(deadline)
    # Reset the lag, or the stream would hold back its pictures by the lag it currently assumes.
    stream.lag_s = 0.0
    lags = [_lag_s(transport, stream, change, deadline) for _ in range(rounds)]
    return max(_LEAST_LAG_S, _LAG_MARGIN * max(lags))


def _lag_s(
    transport: DeviceTransport,
    stream: StreamingCapture,
    change: Callable[[], None],
    deadline: Deadline,
) -> float:
    """Return the seconds from the last raw capture without the change until the stream shows it."""
    watch = _ChangeWatch(transport, deadline)
    before = stream.newest(deadline)
    # The previous change must have arrived before the next is made.
    while not images_match(before, watch.before):
        time.sleep(min(_STREAM_POLL_S, deadline.left_s()))
        before = stream.newest(deadline)
    end_s = time.monotonic() + _FRESH_S
    with watch:
        change()
        while images_match(before, stream.newest(deadline)):
            time.sleep(_STREAM_POLL_S)
            if time.monotonic() >= end_s:
                raise CaptureError(
                    f"{transport.serial}: the stream is stale; a screen change was still not "
                    f"visible after {_FRESH_S:g} s"
                )
        shown_s = time.monotonic()
    return shown_s - watch.unchanged_s


class _ChangeWatch:
    """Takes raw captures in a thread until the screen has changed."""

    def __init__(self, transport: DeviceTransport, deadline: Deadline) -> None:
        self._capture = RawCapture(transport)
        self._deadline = deadline
        self.unchanged_s = time.monotonic()
        """Time at which the last capture without the change began."""
        self.before: Image = self._capture.frame(deadline)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self.unchanged_s = time.monotonic()
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(self._deadline.seconds)

    def _look(self) -> None:
        while not self._ended.is_set():
            begun_s = time.monotonic()
            try:
                picture = self._capture.frame(self._deadline)
            except DeviceError:  # the current `unchanged_s` is a conservative estimate
                return
            if not images_match(self.before, picture):
                return
            self.unchanged_s = begun_s
