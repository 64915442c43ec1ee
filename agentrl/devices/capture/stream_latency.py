"""Measures the lag of a stream: how late it shows what the screen shows."""

import threading
import time
from collections.abc import Callable

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.h264_stream import StreamCapture
from agentrl.devices.capture.image_similarity import images_match
from agentrl.devices.capture.screencap_raw import RawCapture
from agentrl.errors import CaptureError, DeviceError
from agentrl.types import Image

_MARGIN = 1.5
_LEAST_S = 0.03
_POLL_S = 0.002
_FRESH_S = 3.0


def measure_lag_s(
    transport: DeviceTransport,
    stream: StreamCapture,
    change: Callable[[], None],
    rounds: int,
    deadline: Deadline,
) -> float:
    """The largest lag of a stream behind raw captures, with a margin.

    Args:
        transport: to the phone, for the raw captures.
        stream: of the same phone.
        change: changes something on the screen.
        rounds: how often it is changed.
        deadline: overall deadline.

    Raises:
        CaptureError: a change never showed.
        DeviceError: the phone failed.
        TimeoutError: the deadline has passed.
    """
    stream.frame(deadline)
    stream.lag_s = 0.0
    lags = [_once(transport, stream, change, deadline) for _ in range(rounds)]
    return max(_LEAST_S, _MARGIN * max(lags))


def _once(
    transport: DeviceTransport,
    stream: StreamCapture,
    change: Callable[[], None],
    deadline: Deadline,
) -> float:
    """Seconds from the last raw capture without the change to the stream showing it."""
    raw = _Raw(transport, deadline)
    before = stream.newest(deadline)
    while not images_match(before, raw.before):
        time.sleep(min(_POLL_S, deadline.left_s()))
        before = stream.newest(deadline)
    end_s = time.monotonic() + _FRESH_S
    with raw:
        change()
        while images_match(before, stream.newest(deadline)):
            time.sleep(_POLL_S)
            if time.monotonic() >= end_s:
                raise CaptureError(
                    f"{transport.serial}: stale: a change did not show within {_FRESH_S:g} s"
                )
        shown_s = time.monotonic()
    return shown_s - raw.unchanged_s


class _Raw:
    """Takes raw captures in a thread until the screen has changed."""

    def __init__(self, transport: DeviceTransport, deadline: Deadline) -> None:
        self._capture = RawCapture(transport)
        self._deadline = deadline
        self.unchanged_s = time.monotonic()
        """When the last capture without the change was begun."""
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
            except DeviceError:  # `unchanged_s` so far is the conservative answer
                return
            if not images_match(self.before, picture):
                return
            self.unchanged_s = begun_s
