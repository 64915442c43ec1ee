"""Encode the screen as H.264 video: one frame for every change, each in its own packet.

PyAV is imported only here and only when recording.
"""

import asyncio
import io
import threading
from fractions import Fraction
from types import ModuleType
from typing import Any

import cv2

from virtual_phone.system.screen_frame import ScreenFrame

_CLOCK_HZ = 90_000
_RATE = 60
_KEY_FRAME_EVERY = 10 * _RATE
_DELIMITER = b"\x00\x00\x00\x01\x09\xf0"
"""Access unit delimiter (ITU-T H.264, section 7.3.2.4); marks the end of a frame."""


class EncoderMissing(Exception):
    """The H.264 encoder is not installed; the message says what to install."""


def load_av() -> ModuleType:
    """Import PyAV."""
    try:
        import av
    except ImportError as error:
        raise EncoderMissing(
            "PyAV is not installed; run: pip install 'agentrl-screens[stream]'"
        ) from error
    return av


class ScreenRecorder:
    """Encodes frames one at a time, without buffering."""

    def __init__(self, size: tuple[int, int], bit_rate: int, *, container: bool) -> None:
        self._av = load_av()
        self._size = size
        self._file = io.BytesIO()
        self._container: Any = None
        if container:
            self._container = self._av.open(self._file, "w", format="mp4")
            self._codec: Any = self._container.add_stream("libx264", rate=_RATE)
        else:
            self._codec = self._av.CodecContext.create("libx264", "w")
            self._codec.framerate = Fraction(_RATE)
        self._codec.width, self._codec.height = size
        self._codec.pix_fmt = "yuv420p"
        self._codec.bit_rate = bit_rate
        self._codec.time_base = Fraction(1, _CLOCK_HZ)
        self._codec.profile = "Baseline"
        self._codec.options = {
            "preset": "ultrafast",
            "tune": "zerolatency",
            "x264-params": f"repeat-headers=1:annexb=1:keyint={_KEY_FRAME_EVERY}",
        }
        self._last_pts = -1
        self._lock = threading.Lock()

    async def encode(self, frame: ScreenFrame, seconds: float) -> bytes:
        """Encode a frame; return its bytes, or b"" when writing an MP4 file.

        Encoding runs in a thread, so it does not block other phones.
        """
        return await asyncio.to_thread(self._encode, frame, seconds)

    def close(self) -> bytes:
        """Finish the video; return the MP4 file, if any."""
        with self._lock:  # a frame may still be encoding after its caller was cancelled
            self._written(self._codec.encode(None))
            if self._container is not None:
                self._container.close()
            return self._file.getvalue()

    def _encode(self, frame: ScreenFrame, seconds: float) -> bytes:
        rgb = cv2.cvtColor(frame.rgba, cv2.COLOR_RGBA2RGB)
        if frame.size != self._size:
            rgb = cv2.resize(rgb, self._size, interpolation=cv2.INTER_AREA)
        image = self._av.VideoFrame.from_ndarray(rgb, format="rgb24")
        # Encoders reject two frames with the same time, as within one clock tick.
        self._last_pts = max(self._last_pts + 1, round(seconds * _CLOCK_HZ))
        image.pts, image.time_base = self._last_pts, Fraction(1, _CLOCK_HZ)
        with self._lock:
            data = self._written(self._codec.encode(image))
        # Append the next frame's delimiter: only then does a decoder know that this frame is
        # complete, and the next frame may be seconds away.
        return data + _DELIMITER if data else b""

    def _written(self, packets: Any) -> bytes:
        """Return the encoded packets as bytes, or b"" after writing them to the MP4 file."""
        if self._container is None:
            return b"".join(map(bytes, packets))
        self._container.mux(packets)
        return b""
