"""Captures through adbd's `framebuffer:` service: raw pixels without a shell, on some phones."""

import struct
from dataclasses import dataclass

import cv2
import numpy as np

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import Capture, LastPicture
from agentrl.devices.capture.picture_checks import check_lit, check_sides, cut_off, no_frame
from agentrl.errors import CaptureError
from agentrl.types import Image

_VERSION = struct.Struct("<I")
_BODIES = {1: struct.Struct("<12I"), 2: struct.Struct("<13I")}
"""Header layout per version; version 2 has the color space as its second number."""
_BYTES = {
    (16, (11, 5), (5, 6), (0, 5)): (2, cv2.COLOR_BGR5652RGB),
    (24, (0, 8), (8, 8), (16, 8)): (3, None),
    (24, (16, 8), (8, 8), (0, 8)): (3, cv2.COLOR_BGR2RGB),
    (32, (0, 8), (8, 8), (16, 8)): (4, cv2.COLOR_RGBA2RGB),
    (32, (16, 8), (8, 8), (0, 8)): (4, cv2.COLOR_BGRA2RGB),
}
"""Maps bits per pixel and the (offset, length) of red, green and blue to the bytes per pixel and
the OpenCV conversion to RGB."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Header:
    size: int
    width: int
    height: int
    form: tuple[int, tuple[int, int], tuple[int, int], tuple[int, int]]


class FramebufferCapture(Capture):
    """Captures by adbd itself, without a shell; some phones do not allow it."""

    def __init__(self, transport: DeviceTransport) -> None:
        self._transport = transport
        self._buffer = bytearray()
        self._header: _Header | None = None
        self._last = LastPicture()
        """Last picture with this header; under another header, its bytes mean something else."""

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        with self._transport.opened("framebuffer:", deadline, "framebuffer") as link:
            return self.read(link)

    def close(self) -> None:
        """See Capture.close."""
        self._last = LastPicture()

    def read(self, link: AdbSocket) -> Image:
        """Read one frame from a link on which `framebuffer:` was opened."""
        serial = self._transport.serial
        header = _read_header(link, serial)
        if header.form not in _BYTES:
            raise CaptureError(f"{serial}: framebuffer pixel format {header.form} is not supported")
        if header != self._header:
            self._header, self._last = header, LastPicture()
        depth, code = _BYTES[header.form]
        pixels = header.width * header.height * depth
        # Row padding would shift the picture.
        if header.size != pixels:
            raise CaptureError(
                f"{serial}: framebuffer announced {header.size} bytes for "
                f"{header.width}x{header.height} pixels of {depth} bytes"
            )
        if len(self._buffer) < pixels:
            self._buffer = bytearray(pixels)
        got = link.read_into(memoryview(self._buffer)[:pixels])
        if got < pixels:
            raise cut_off(serial, header.width, header.height, got, pixels)
        shape = (header.height, header.width, depth)
        picture = np.frombuffer(self._buffer, np.uint8, pixels).reshape(shape)

        def convert() -> Image:
            rgb = picture.copy() if code is None else cv2.cvtColor(picture, code)
            return check_lit(serial, rgb.astype(np.uint8, copy=False))

        return self._last.update(memoryview(self._buffer)[:pixels], convert)


def _read_header(link: AdbSocket, serial: str) -> _Header:
    start = link.read(_VERSION.size)
    if len(start) < _VERSION.size:
        raise no_frame(serial, start)
    (version,) = _VERSION.unpack(start)
    if version not in _BODIES:
        raise CaptureError(
            f"{serial}: framebuffer version {version} is not supported, only 1 and 2"
        )
    body = link.read(_BODIES[version].size)
    if len(body) < _BODIES[version].size:
        raise no_frame(serial, start + body)
    bits, *numbers = _BODIES[version].unpack(body)
    size, width, height, *channels = numbers[version - 1 :]
    check_sides(serial, width, height, start + body)
    # adbd's header has this order; each channel is an offset and a length in bits.
    red, blue, green = (tuple(channels[at : at + 2]) for at in (0, 2, 4))
    return _Header(size=size, width=width, height=height, form=(bits, red, green, blue))
