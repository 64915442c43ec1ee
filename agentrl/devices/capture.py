"""Frames out of `screencap`: read into one buffer, checked, and turned into RGB."""

import struct

import cv2
import numpy as np

from agentrl.devices.link import Link
from agentrl.errors import CaptureError
from agentrl.types import Image

_SHORT_HEADER = 12
_LONG_HEADER = 16
"""Android 9 and later add the colour space."""
_RGBA_8888, _RGBX_8888 = 1, 2
_LARGEST_SIDE = 16_384
_COARSE = 61
"""Every so many rows and columns are looked at first."""


class FrameReader:
    """Reads raw frames; keeps the buffer from one to the next."""

    def __init__(self) -> None:
        """The buffer grows with the first frame."""
        self._buffer = bytearray(_LONG_HEADER)

    def read(self, link: Link, serial: str) -> Image:
        """One frame, uint8[H, W, 3]; the caller owns it.

        Args:
            link: on which `screencap` has been opened.
            serial: for messages.

        Raises:
            CaptureError: what came is no complete frame, or one without a single lit pixel.
        """
        got = link.read_into(memoryview(self._buffer)[:_SHORT_HEADER])
        if got < _SHORT_HEADER:
            text = bytes(self._buffer[:got]).decode(errors="replace").strip()
            raise CaptureError(f"{serial}: screencap gave {got} bytes and no frame: {text!r}")
        width, height, form = struct.unpack_from("<3I", self._buffer)
        if not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
            told = bytes(self._buffer[:_SHORT_HEADER])
            raise CaptureError(f"{serial}: screencap gave no frame, it starts with {told!r}")
        if form not in (_RGBA_8888, _RGBX_8888):
            raise CaptureError(f"{serial}: screencap gave pixels of format {form}, not RGBA")
        pixels = width * height * 4
        if len(self._buffer) < _LONG_HEADER + pixels:
            self._buffer = self._buffer[:_SHORT_HEADER] + bytearray(pixels + 4)
        view = memoryview(self._buffer)
        got = link.read_into(view[_SHORT_HEADER : _LONG_HEADER + pixels])
        if got < pixels:
            raise CaptureError(
                f"{serial}: the frame of {width}x{height} ended after {got} of {pixels} bytes"
            )
        start = _SHORT_HEADER + got - pixels
        rgba = np.frombuffer(view, np.uint8, pixels, start).reshape(height, width, 4)
        rgb = cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB).astype(np.uint8, copy=False)
        # A few pixels first: all of them are only looked at where those are black.
        if not (rgb[::_COARSE, ::_COARSE].any() or rgb.any()):
            raise CaptureError(
                f"{serial}: the frame of {width}x{height} is black all over: the phone is asleep, "
                "locked, or shows a window that forbids captures. Wake and unlock it, switch the "
                f"lock screen off (adb -s {serial} shell svc power stayon true), and try again."
            )
        return rgb
