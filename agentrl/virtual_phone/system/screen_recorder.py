"""The screen as a stream of H.264: a picture for every change, each a packet of its own.

PyAV is imported here alone, and only when somebody records.
"""

import asyncio
import io
import threading
from fractions import Fraction
from types import ModuleType
from typing import Any

import cv2

from agentrl.virtual_phone.system.screen import Frame

_CLOCK_HZ = 90_000
_RATE = 60
_KEY_FRAME_EVERY = 10 * _RATE
_DELIMITER = b"\x00\x00\x00\x01\x09\xf0"
"""An access unit delimiter, ITU-T H.264 section 7.3.2.4: where one picture ends."""


class NoEncoder(Exception):
    """There is no H.264 encoder here; the message says what to install."""


def load_av() -> ModuleType:
    """PyAV.

    Raises:
        NoEncoder: it is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise NoEncoder("needs PyAV: pip install 'agentrl[stream]'") from error
    return av


class Recorder:
    """Encodes frames; one at a time, and none waits for the next."""

    def __init__(self, size: tuple[int, int], bit_rate: int, *, container: bool) -> None:
        """Open an encoder.

        Args:
            size: width and height of the pictures, in pixels; both even.
            bit_rate: in bits per second, at most.
            container: whether the stream is to be kept as an MP4 file.

        Raises:
            NoEncoder: there is none.
        """
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

    async def encode(self, frame: Frame, seconds: float) -> bytes:
        """One frame as bytes of the stream; nothing where a file is kept.

        It happens in a thread, in which other phones are not held up.

        Args:
            frame: of the screen.
            seconds: since the start.
        """
        return await asyncio.to_thread(self._encode, frame, seconds)

    def close(self) -> bytes:
        """End; the file, where one is kept."""
        with self._lock:  # whoever waited for a picture may have left before it was encoded
            self._written(self._codec.encode(None))
            if self._container is not None:
                self._container.close()
            return self._file.getvalue()

    def _encode(self, frame: Frame, seconds: float) -> bytes:
        rgb = cv2.cvtColor(frame.rgba, cv2.COLOR_RGBA2RGB)
        if frame.size != self._size:
            rgb = cv2.resize(rgb, self._size, interpolation=cv2.INTER_AREA)
        picture = self._av.VideoFrame.from_ndarray(rgb, format="rgb24")
        self._last_pts = max(self._last_pts + 1, round(seconds * _CLOCK_HZ))
        picture.pts, picture.time_base = self._last_pts, Fraction(1, _CLOCK_HZ)
        with self._lock:
            data = self._written(self._codec.encode(picture))
        # The delimiter of the next picture is sent with this one: a decoder knows only by it that
        # the picture is complete, and the next may be seconds away.
        return data + _DELIMITER if data else b""

    def _written(self, packets: Any) -> bytes:
        """What was encoded, as bytes; nothing where it went into a file."""
        if self._container is None:
            return b"".join(map(bytes, packets))
        self._container.mux(packets)
        return b""
