"""Captures by `screencap`: raw pixels, read into one buffer and converted to RGB."""

import struct

import cv2
import numpy as np

from agentrl.devices.adb.adb_socket import AdbSocket, Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import check_lit, check_sides, cut_off, no_frame
from agentrl.errors import CaptureError
from agentrl.types import Image

_SHORT_HEADER = 12
_LONG_HEADER = 16
"""Android 9 and later add the color space."""
_RGBA_8888, _RGBX_8888 = 1, 2


class RawCapture:
    """The fastest capture that every phone supports, over a fast connection; see Capture."""

    def __init__(self, line: DeviceTransport) -> None:
        """The buffer is allocated with the first frame and reused."""
        self._transport = line
        self._buffer = bytearray(_LONG_HEADER)

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        # Phones with two screens write a warning before the frame.
        with self._transport.opened("exec:screencap 2>/dev/null", deadline, "screencap") as link:
            return self.read(link)

    def close(self) -> None:
        """Does nothing."""

    def read(self, link: AdbSocket) -> Image:
        """Read one frame from a link on which `screencap` was opened.

        Raises:
            CaptureError: the picture is incomplete or black.
        """
        serial = self._transport.serial
        got = link.read_into(memoryview(self._buffer)[:_SHORT_HEADER])
        if got < _SHORT_HEADER:
            raise no_frame(serial, bytes(self._buffer[:got]))
        width, height, form = struct.unpack_from("<3I", self._buffer)
        check_sides(serial, width, height, bytes(self._buffer[:_SHORT_HEADER]))
        if form not in (_RGBA_8888, _RGBX_8888):
            raise CaptureError(f"{serial}: screencap returned pixel format {form}, not RGBA")
        pixels = width * height * 4
        if len(self._buffer) < _LONG_HEADER + pixels:
            self._buffer = self._buffer[:_SHORT_HEADER] + bytearray(pixels + 4)
        view = memoryview(self._buffer)
        got = link.read_into(view[_SHORT_HEADER : _LONG_HEADER + pixels])
        if got < pixels:
            raise cut_off(serial, width, height, got, pixels)
        start = _SHORT_HEADER + got - pixels
        rgba = np.frombuffer(view, np.uint8, pixels, start).reshape(height, width, 4)
        rgb = cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB).astype(np.uint8, copy=False)
        return check_lit(serial, rgb)
