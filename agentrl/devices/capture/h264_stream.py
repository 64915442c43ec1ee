"""Captures through `screenrecord`: the newest frame of an H.264 stream.

A stream is the fastest capture on most real phones, and the easiest to get wrong. Its frames
lag behind the screen by an unknown time, and while the screen does not change no frames arrive at
all. Hence these rules:

- A frame is returned only once `lag_s` has passed since the request, because by then everything
  that was on the screen has arrived. The lag is measured
  (`agentrl.devices.capture_and_input_timing`); the default suits a slow phone.
- The stream is compared with a raw capture periodically, and whenever most of the screen changed,
  because a recording keeps its orientation when the phone is rotated. If the two differ, the
  stream is restarted; if that does not help, the capture fails.
- A damaged stream is never decoded further, and a stream that has ended is restarted.

The pictures are compressed, so they are close to other captures but not equal.
"""

import threading
import time
from typing import TYPE_CHECKING, cast

import numpy as np

from agentrl import extras
from agentrl.devices.adb.adb_socket import AdbSocket, to_device_error
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import FAILURES, DeviceTransport
from agentrl.devices.capture.capture_method import StreamingCapture
from agentrl.devices.capture.picture_checks import block_difference, check_lit, images_match
from agentrl.devices.capture.screencap import RawCapture
from agentrl.errors import CaptureError, ConfigError, DeviceError
from agentrl.types import Image

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_RECORD = "screenrecord --output-format=h264 --time-limit 180"
_CHECK_EVERY_S = 10.0
_CHECKS = 3
_MOST = 1 / 3
"""Changed fraction of the screen that triggers a comparison with a raw capture."""
_DARK = 8
"""Channel values up to this count as black, because compression does not keep black at exactly
0."""
_GAP_S = 0.02
"""A frame counts as complete when no data has arrived for this long."""
_FOREVER_S = 86_400.0
_ACCESS_UNIT_DELIMITER = b"\0\0\0\1\x09\xf0"


class StreamCapture(StreamingCapture):
    """Captures the newest frame of an H.264 stream: fast, but compressed.

    Args:
        transport: transport to the phone.
        lag_s: upper bound on the seconds until the stream shows a change of the screen.
    """

    def __init__(self, transport: DeviceTransport, lag_s: float = 0.25) -> None:
        self.check_installed()
        self.lag_s = lag_s
        self._transport = transport
        self._raw = RawCapture(transport)
        self._run: ScreenRecording | None = None
        self._checked: Image = np.zeros((1, 1, 3), np.uint8)
        self._check_at_s = 0.0

    @classmethod
    def check_installed(cls) -> None:
        """See Capture.check_installed."""
        try:
            import av  # noqa: F401 - fails early if PyAV is missing
        except ImportError as error:
            raise ConfigError(
                f"devices.capture=stream needs PyAV ({error}): {extras.GET_STREAM}, or use "
                "devices.capture=auto"
            ) from error

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        try:
            picture = self.newest(deadline)
            if (
                time.monotonic() >= self._check_at_s
                or block_difference(self._checked, picture) > _MOST
            ):
                picture = self._check(picture, deadline)
                self._checked, self._check_at_s = picture, time.monotonic() + _CHECK_EVERY_S
        except TimeoutError as error:
            raise to_device_error(
                error, f"{self._transport.serial}: screenrecord", deadline.seconds
            ) from error
        except CaptureError:
            self.close()
            raise
        return check_lit(self._transport.serial, picture, dark=_DARK).copy()

    def close(self) -> None:
        """Stop the recording."""
        run, self._run = self._run, None
        self._check_at_s = 0.0
        if run is not None:
            run.close()

    def newest(self, deadline: Deadline) -> Image:
        """See StreamingCapture.newest."""
        # A recording ends by itself after its time limit (Android's is 180 s): one restart is
        # normal.
        asked_s, why = time.monotonic(), ""
        for _ in range(2):
            run = self._run
            if run is None or run.ended:
                run = self._start(deadline)
            frame = run.newest(asked_s + self.lag_s, deadline)
            if frame is not None:
                return rgb(frame)
            why = run.why_ended()
        error = CaptureError(f"{self._transport.serial}: screenrecord returned no frame: {why}")
        raise self._transport.gone_after(error) or error

    def _start(self, deadline: Deadline) -> "ScreenRecording":
        self.close()
        try:
            display = self._transport.display
            record = f"{_RECORD} --display-id {display} -" if display else f"{_RECORD} -"
            link = self._transport.open(f"exec:{record} 2>/dev/null", deadline)
        except FAILURES as error:
            raise self._transport.failure(error, "screenrecord", deadline.seconds) from error
        self._run = ScreenRecording(link)
        return self._run

    def _check(self, picture: Image, deadline: Deadline) -> Image:
        """Return the newest frame once the stream and a raw capture show the same screen."""
        for attempt in range(_CHECKS):
            real = self._raw.frame(deadline)
            following = self.newest(deadline)
            # The screen may have changed before the raw capture or after it.
            if images_match(real, picture) or images_match(real, following):
                return following
            picture = following
            # The phone was rotated, and only a new recording has the new orientation.
            if attempt == 0 and real.shape != following.shape:
                self.close()
                picture = self.newest(deadline)
        raise CaptureError(
            f"{self._transport.serial}: the {_sides(picture)} stream does not match the "
            f"{_sides(real)} screen; use devices.capture=auto"
        )


class ScreenRecording:
    """One screen recording, read by its own thread."""

    def __init__(self, link: AdbSocket) -> None:
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
        """Return the newest frame, from `not_before_s` or later; None if the recording ended."""
        with self._moved:
            while not self.ended:
                wait_s = not_before_s - time.monotonic()
                if wait_s <= 0 and self._frame is not None:
                    # If the screen keeps changing, part of the next frame is always pending.
                    if not self._pending or self._frame_at_s >= not_before_s:
                        return self._frame
                    wait_s = _GAP_S
                left_s = deadline.left_s()
                self._moved.wait(min(left_s, wait_s) if wait_s > 0 else left_s)
            return None

    def why_ended(self) -> str:
        """Return why the recording ended, as far as known."""
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
        decoder = H264Decoder()
        while True:
            # Only the next frame marks the end of a frame; until then, a pause indicates it.
            self._link.deadline = Deadline(_GAP_S if self._pending else _FOREVER_S)
            try:
                data = self._link.receive()
            except TimeoutError:
                self._keep(decoder.flush(), pending=False)
                continue
            if not data:
                return
            self._first = self._first or data[:200]
            self._pending = True
            self._keep(decoder.feed(data), pending=True)

    def _keep(self, frame: "VideoFrame | None", *, pending: bool) -> None:
        with self._moved:
            self._pending = pending
            if frame is not None:
                self._frame, self._frame_at_s = frame, time.monotonic()
            self._moved.notify_all()


class H264Decoder:
    """Decodes an H.264 elementary stream incrementally."""

    def __init__(self) -> None:
        import av
        from av.video.codeccontext import VideoCodecContext

        codec = av.CodecContext.create("h264", "r")
        assert isinstance(codec, VideoCodecContext)
        # N threads would delay the output by N frames.
        codec.thread_type = "NONE"
        # Without this, the decoder makes up missing parts of a picture.
        codec.options = {"err_detect": "explode"}
        self._codec = codec

    def feed(self, data: bytes) -> "VideoFrame | None":
        """Decode bytes and return the last frame they complete, if any."""
        from av.error import FFmpegError

        last = None
        try:
            for packet in self._codec.parse(data):
                for frame in self._codec.decode(packet):
                    if frame.is_corrupt:
                        raise CaptureError("the stream contains a damaged frame")
                    last = frame
        except FFmpegError as error:
            raise CaptureError(f"the stream is damaged: {error}") from error
        return last

    def flush(self) -> "VideoFrame | None":
        """Return the pending frame, whose end only the next frame would mark."""
        return self.feed(_ACCESS_UNIT_DELIMITER)


def _sides(picture: Image) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"


def rgb(frame: "VideoFrame") -> Image:
    """Convert a frame to a picture, uint8[H, W, 3]."""
    return cast(Image, frame.to_ndarray(format="rgb24"))
