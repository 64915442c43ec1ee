"""Packets exchanged between the adb server and a phone.

A packet is six little-endian u32 (command, arg0, arg1, payload length, checksum, command ^ -1),
then the payload: https://android.googlesource.com/platform/packages/modules/adb/+/HEAD/protocol.txt
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from virtual_phone.system.byte_channels import Buffer

CNXN = 0x4E584E43
AUTH = 0x48545541
OPEN = 0x4E45504F
OKAY = 0x59414B4F
CLSE = 0x45534C43
WRTE = 0x45545257

AUTH_TOKEN, AUTH_SIGNATURE, AUTH_PUBLIC_KEY = 1, 2, 3
"""Kinds of AUTH packets: their first argument."""

VERSION = 0x01000001
"""Since this version, checksums are zero and not verified."""
OLDEST_VERSION = 0x01000000
MAX_PAYLOAD = 0x100000
HEADER = struct.Struct("<6I")

_COMMANDS = frozenset((CNXN, AUTH, OPEN, OKAY, CLSE, WRTE))


class ProtocolError(Exception):
    """Received bytes are not ADB; the connection is no longer usable."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Packet:
    """An ADB packet."""

    command: int
    arg0: int
    arg1: int
    payload: bytes = b""


def header(command: int, arg0: int, arg1: int, length: int, checksum: int = 0) -> bytes:
    """Encode the 24-byte header of a payload of `length` bytes."""
    return HEADER.pack(command, arg0, arg1, length, checksum, command ^ 0xFFFFFFFF)


def checksum(*payload: Buffer) -> int:
    """Return the sum of all bytes, which peers older than `VERSION` verify."""
    return sum(int(np.frombuffer(p, np.uint8).sum(dtype=np.uint32)) for p in payload) & 0xFFFFFFFF


def encode(packet: Packet) -> bytes:
    """Encode a packet as bytes."""
    return header(packet.command, packet.arg0, packet.arg1, len(packet.payload)) + packet.payload


class PacketParser:
    """Incremental parser that turns chunks of bytes into packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Packet]:
        """Add bytes to the buffer and yield the packets completed so far."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            command, arg0, arg1, length, _, magic = HEADER.unpack_from(self._buffer)
            if command not in _COMMANDS or magic != command ^ 0xFFFFFFFF:
                raise ProtocolError(f"not an ADB packet: command {command:#x}, magic {magic:#x}")
            if length > MAX_PAYLOAD:
                raise ProtocolError(f"payload of {length} bytes exceeds {MAX_PAYLOAD}")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[HEADER.size : end])
            del self._buffer[:end]
            yield Packet(command=command, arg0=arg0, arg1=arg1, payload=payload)
