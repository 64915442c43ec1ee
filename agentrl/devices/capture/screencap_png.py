"""Captures by `screencap -p`: a tenth of the bytes but slower to encode; for slow connections."""

import struct
import zlib

import cv2
import numpy as np

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import check_lit, check_sides, no_frame
from agentrl.errors import CaptureError
from agentrl.types import Image

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")


class PngCapture:
    """See Capture."""

    def __init__(self, line: DeviceTransport) -> None:
        """Keeps nothing between frames."""
        self._transport = line

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        data = bytearray()
        with self._transport.opened(
            "exec:screencap -p 2>/dev/null", deadline, "screencap -p"
        ) as link:
            while chunk := link.receive():
                data += chunk
        return decode(bytes(data), self._transport.serial)

    def close(self) -> None:
        """Does nothing."""


def decode(data: bytes, serial: str) -> Image:
    """The picture in a PNG, uint8[H, W, 3].

    OpenCV returns partial pictures of truncated or damaged files, so every chunk is checked first.

    Raises:
        CaptureError: not a PNG, incomplete, or black.
    """
    if not data.startswith(_SIGNATURE):
        raise no_frame(serial, data[:64])
    width, height = _sides(data, serial)
    _check_chunks(data, serial)
    rgb = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if rgb is None or rgb.shape != (height, width, 3):
        raise CaptureError(f"{serial}: the {width}x{height} PNG cannot be decoded")
    return check_lit(serial, rgb.astype(np.uint8, copy=False))


def _sides(data: bytes, serial: str) -> tuple[int, int]:
    header = data[len(_SIGNATURE) : len(_SIGNATURE) + 16]
    if len(header) < 16 or header[4:8] != b"IHDR":
        raise CaptureError(f"{serial}: the PNG ended after {len(data)} bytes, in its header")
    width, height = struct.unpack_from(">2I", header, 8)
    check_sides(serial, width, height, header)
    return width, height


def _check_chunks(data: bytes, serial: str) -> None:
    at, kind = len(_SIGNATURE), b""
    while kind != b"IEND":
        if at + _CHUNK.size > len(data):
            raise CaptureError(f"{serial}: the PNG ended after {len(data)} bytes, before its end")
        length, kind = _CHUNK.unpack_from(data, at)
        end = at + _CHUNK.size + length
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise CaptureError(
                f"{serial}: the PNG of {len(data)} bytes is truncated or damaged at byte {at}"
            )
        at = end + 4
