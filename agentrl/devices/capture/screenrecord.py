"""One run of `screenrecord`, read in a thread that keeps the newest frame."""

import threading
import time
from typing import TYPE_CHECKING

from agentrl.devices.adb.adb_socket import AdbSocket, Deadline
from agentrl.devices.adb.device_transport import FAILURES
from agentrl.errors import DeviceError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_GAP_S = 0.02
"""A frame is complete when no more data has come for this long."""
_FOREVER_S = 86_400.0


class ScreenRecording:
    """One recording, from its start to its end, read by its own thread."""

    def __init__(self, link: AdbSocket) -> None:
        """Start reading from a link on which `screenrecord` was opened."""
        self.ended = False
        self._link = link
        self._first = b""
        self._frame: VideoFrame | None = None
        self._frame_at_s = 0.0
        self._pending = False
        self._error = ""
        self._moved = threading.Condition()
        threading.Thread(target=self._read, name="screenrecord", daemon=True).start()

    def newest(self, not_before_s: float, deadline: Deadline) -> "VideoFrame | None":
        """The newest frame, not earlier than that time; None if the recording has ended.

        Raises:
            TimeoutError: no frame came within the deadline.
        """
        with self._moved:
            while not self.ended:
                wait_s = not_before_s - time.monotonic()
                if wait_s <= 0 and self._frame is not None:
                    # If the screen never rests, part of the next frame is always pending.
                    if not self._pending or self._frame_at_s >= not_before_s:
                        return self._frame
                    wait_s = _GAP_S
                left_s = deadline.left_s()
                self._moved.wait(min(left_s, wait_s) if wait_s > 0 else left_s)
            return None

    def why_ended(self) -> str:
        """Why it ended, as far as known."""
        return self._error or repr(self._first.decode(errors="replace"))

    def close(self) -> None:
        """Stop the recording."""
        self._link.close()

    def _read(self) -> None:
        try:
            self._decode()
        except (*FAILURES, DeviceError) as error:
            self._error = str(error)
        with self._moved:
            self.ended = True
            self._moved.notify_all()
        self._link.close()

    def _decode(self) -> None:
        from agentrl.devices.capture.h264_decoder import H264Decoder

        decoder = H264Decoder()
        while True:
            self._link.deadline = Deadline(_GAP_S if self._pending else _FOREVER_S)
            try:
                data = self._link.receive()
            except TimeoutError:
                self._take(decoder.flush(), pending=False)
                continue
            if not data:
                return
            self._first = self._first or data[:200]
            self._pending = True
            self._take(decoder.feed(data), pending=True)

    def _take(self, frame: "VideoFrame | None", *, pending: bool) -> None:
        with self._moved:
            self._pending = pending
            if frame is not None:
                self._frame, self._frame_at_s = frame, time.monotonic()
            self._moved.notify_all()
