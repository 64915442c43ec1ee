"""Captures through `screencap`: raw pixels, or PNG for slow connections.

A PNG is a tenth of the size but takes the phone longer to encode.
"""

import math
import struct
import zlib

import cv2
import numpy as np

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import Snippet
from agentrl.devices.capture.capture_method import Capture, LastPicture
from agentrl.devices.capture.picture_checks import check_lit, check_sides, cut_off, no_frame
from agentrl.errors import CaptureError
from agentrl.types import Image
from virtual_phone.system.screen_frame import (
    BOX,
    CHANGES,
    CHANGES_HEADER,
    KNOWN_SCREEN,
    SENT,
)

_SHORT_HEADER = 12
_LONG_HEADER = 16
"""Size of the header in Android 9 and later, which adds the color space."""
_RGBA_8888, _RGBX_8888 = 1, 2
_LARGE = 200_000
"""Number of bytes of changes from which a separate connection beats the persistent shell."""
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK = struct.Struct(">I4s")


class RawCapture(Capture):
    """Captures raw pixels; of the methods that every phone has, the fastest over a fast link."""

    def __init__(self, transport: DeviceTransport) -> None:
        self._transport = transport
        self._buffer = bytearray(_LONG_HEADER)
        self._last = LastPicture()
        self._token = ""
        """The phone's token for the last picture; empty if it was not sent as changes."""
        self._came_by_shell = False
        """Whether the last picture came through the persistent shell."""
        self._is_large = False
        """Whether the last picture's changes were large, as the next one's probably will be."""

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        # Phones with two screens write a warning before the frame.
        command = screencap_command(self._transport)
        service = f"exec:{KNOWN_SCREEN}={self._token or 'none'} {command} 2>/dev/null"
        self._came_by_shell = False
        with self._transport.opened(service, deadline, "screencap") as link:
            return self.read(link)

    @property
    def command(self) -> Snippet | None:
        """See Capture.command; None until the phone has sent a few changes."""
        if not self._token or self._is_large:
            return None
        # Use the same text where possible, because the shell has already parsed it.
        known = SENT if self._came_by_shell else self._token
        command = screencap_command(self._transport)
        return Snippet(f"{KNOWN_SCREEN}={known} {command} 2>/dev/null")

    def close(self) -> None:
        """See Capture.close."""
        self._last, self._token = LastPicture(), ""

    def read(self, link: AdbSocket) -> Image:
        """Read one frame from a link on which `screencap` was opened."""
        serial = self._transport.serial
        got = link.read_into(memoryview(self._buffer)[:_SHORT_HEADER])
        if got < _SHORT_HEADER:
            raise no_frame(serial, bytes(self._buffer[:got]))
        width, height, form = struct.unpack_from("<3I", self._buffer)
        check_sides(serial, width, height, bytes(self._buffer[:_SHORT_HEADER]))
        if form == CHANGES:
            return self._changed(width, height, memoryview(link.read_all()))
        if form not in (_RGBA_8888, _RGBX_8888):
            raise CaptureError(f"{serial}: screencap returned pixel format {form}, not RGBA")
        # One buffer for all frames, which are megabytes large and mostly of the same size.
        pixels = width * height * 4
        self._reserve(_LONG_HEADER + pixels)
        view = memoryview(self._buffer)
        got = link.read_into(view[_SHORT_HEADER : _LONG_HEADER + pixels])
        if got < pixels:
            raise cut_off(serial, width, height, got, pixels)
        # The number of bytes received shows whether the header is long or short.
        start = _SHORT_HEADER + got - pixels
        rgba = np.frombuffer(view, np.uint8, pixels, start).reshape(height, width, 4)

        def convert() -> Image:
            rgb = cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB).astype(np.uint8, copy=False)
            return check_lit(serial, rgb)

        self._token = ""
        return self._last.update(view[: _SHORT_HEADER + got], convert)

    def parse(self, output: bytes) -> Image | None:
        """See Capture.parse."""
        if len(output) < _SHORT_HEADER:
            return None
        width, height, form = struct.unpack_from("<3I", output)
        if form != CHANGES:
            return None
        self._came_by_shell = False  # if this picture is rejected, request the next by token
        picture = self._changed(width, height, memoryview(output)[_SHORT_HEADER:])
        self._came_by_shell = True
        return picture

    def _changed(self, width: int, height: int, data: memoryview) -> Image:
        """Apply the changes sent by a virtual phone, if any, to the last picture and return it."""
        serial, shape = self._transport.serial, (height, width, 3)
        self._is_large = len(data) > _LARGE
        start = 4 + CHANGES_HEADER.size  # after the color space
        if len(data) < start:
            raise no_frame(serial, bytes(data))
        # The changes apply to a picture named by the phone; any other base is useless.
        token, base, count = CHANGES_HEADER.unpack_from(data, 4)
        at = start + min(count, (len(data) - start) // BOX.size) * BOX.size
        boxes = list(BOX.iter_unpack(data[start:at]))
        old = self._last.picture if base.hex() == self._token else None
        sizes = [(bottom - top, right - left, 3) for left, top, right, bottom in boxes]
        fit = all(x < right <= width and y < bottom <= height for x, y, right, bottom in boxes)
        is_known = not any(base) or (old is not None and old.shape == shape)
        if len(boxes) != count or not fit or not is_known:
            raise CaptureError(f"{serial}: screencap sent {count} changes to an unknown picture")
        pixels = sum(map(math.prod, sizes))
        if len(data) - at < pixels:
            raise cut_off(serial, width, height, len(data) - at, pixels)
        picture = np.zeros(shape, np.uint8) if old is None else old
        # Without changes, return the last array again, which saves comparing screens.
        if boxes:
            picture = picture.copy()
            for (left, top, right, bottom), size in zip(boxes, sizes, strict=True):
                changed = np.frombuffer(data, np.uint8, math.prod(size), at)
                picture[top:bottom, left:right] = changed.reshape(size)
                at += changed.size
            picture.flags.writeable = False
        check_lit(serial, picture)
        self._token, self._last.digest, self._last.picture = token.hex(), "", picture
        return picture

    def _reserve(self, size: int) -> None:
        """Grow the buffer to at least this size, keeping the header in it."""
        if len(self._buffer) < size:
            self._buffer = self._buffer[:_SHORT_HEADER] + bytearray(size - _SHORT_HEADER)


class PngCapture(Capture):
    """Captures PNG files: slow to encode, but a tenth of the size."""

    def __init__(self, transport: DeviceTransport) -> None:
        self._transport = transport
        self._last = LastPicture()

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        service = f"exec:{screencap_command(self._transport)} -p 2>/dev/null"
        with self._transport.opened(service, deadline, "screencap -p") as link:
            png = link.read_all()
        return self._last.update(png, lambda: decode_png(png, self._transport.serial))

    def close(self) -> None:
        """See Capture.close."""
        self._last = LastPicture()


def screencap_command(transport: DeviceTransport) -> str:
    """Return the `screencap` command for the display that shows apps."""
    return f"screencap -d {transport.display}" if transport.display else "screencap"


def decode_png(data: bytes, serial: str) -> Image:
    """Decode a PNG to uint8[H, W, 3]."""
    # OpenCV returns partial pictures for truncated or damaged files, so check each chunk first.
    if not data.startswith(_PNG_SIGNATURE):
        raise no_frame(serial, data[:64])
    at, kind = len(_PNG_SIGNATURE), b""
    header = data[at : at + 16]
    if len(header) < 16 or header[4:8] != b"IHDR":
        raise CaptureError(f"{serial}: the PNG ended after {len(data)} bytes, in its header")
    width, height = struct.unpack_from(">2I", header, 8)
    check_sides(serial, width, height, header)
    while kind != b"IEND":
        if at + _PNG_CHUNK.size > len(data):
            raise CaptureError(f"{serial}: the PNG ended after {len(data)} bytes, before IEND")
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        end = at + _PNG_CHUNK.size + length
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise CaptureError(
                f"{serial}: the PNG of {len(data)} bytes is truncated or damaged at byte {at}"
            )
        at = end + 4
    rgb = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if rgb is None or rgb.shape != (height, width, 3):
        raise CaptureError(f"{serial}: the {width}x{height} PNG cannot be decoded")
    return check_lit(serial, rgb.astype(np.uint8, copy=False))
