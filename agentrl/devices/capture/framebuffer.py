"""`framebuffer:`, adbd's own service: raw pixels without a shell, where the phone offers it."""

import struct
from dataclasses import dataclass

import cv2
import numpy as np

from agentrl.devices.adb.adb_socket import Deadline, Link
from agentrl.devices.adb.device_transport import Line
from agentrl.devices.capture.capture_method import check_lit, check_sides, cut_off, no_frame
from agentrl.errors import CaptureError
from agentrl.types import Image

_VERSION = struct.Struct("<I")
_BODIES = {1: struct.Struct("<12I"), 2: struct.Struct("<13I")}
"""Version 2 has the colour space as its second number."""
_BYTES = {
    (16, (11, 5), (5, 6), (0, 5)): (2, cv2.COLOR_BGR5652RGB),
    (24, (0, 8), (8, 8), (16, 8)): (3, None),
    (24, (16, 8), (8, 8), (0, 8)): (3, cv2.COLOR_BGR2RGB),
    (32, (0, 8), (8, 8), (16, 8)): (4, cv2.COLOR_RGBA2RGB),
    (32, (16, 8), (8, 8), (0, 8)): (4, cv2.COLOR_BGRA2RGB),
}
"""Bytes of a pixel and what turns them into RGB, by the bits of a pixel and the place and the
length of red, green and blue."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Header:
    size: int
    width: int
    height: int
    form: tuple[int, tuple[int, int], tuple[int, int], tuple[int, int]]


class FramebufferCapture:
    """See Capture."""

    def __init__(self, line: Line) -> None:
        """The buffer grows with the first frame, and is kept from one to the next."""
        self._line = line
        self._buffer = bytearray()

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        with self._line.opened("framebuffer:", deadline, "framebuffer") as link:
            return self.read(link)

    def close(self) -> None:
        """Nothing is kept that ends."""

    def read(self, link: Link) -> Image:
        """One frame out of a link on which `framebuffer:` has been opened.

        Raises:
            CaptureError: what came is no whole picture, or a black one.
        """
        serial = self._line.serial
        header = _read_header(link, serial)
        if header.form not in _BYTES:
            raise CaptureError(f"{serial}: framebuffer gave pixels of a form {header.form}")
        depth, code = _BYTES[header.form]
        pixels = header.width * header.height * depth
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
        rgb = picture.copy() if code is None else cv2.cvtColor(picture, code)
        return check_lit(serial, rgb.astype(np.uint8, copy=False))


def _read_header(link: Link, serial: str) -> _Header:
    start = link.read(_VERSION.size)
    if len(start) < _VERSION.size:
        raise no_frame(serial, start)
    (version,) = _VERSION.unpack(start)
    if version not in _BODIES:
        raise CaptureError(f"{serial}: framebuffer of version {version}; known are 1 and 2")
    body = link.read(_BODIES[version].size)
    if len(body) < _BODIES[version].size:
        raise no_frame(serial, start + body)
    bits, *numbers = _BODIES[version].unpack(body)
    size, width, height, *colours = numbers[version - 1 :]
    check_sides(serial, width, height, start + body)
    red, blue, green = (tuple(colours[at : at + 2]) for at in (0, 2, 4))
    return _Header(size=size, width=width, height=height, form=(bits, red, green, blue))
