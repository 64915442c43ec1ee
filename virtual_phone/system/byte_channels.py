"""Byte channels between two programs on a phone."""

import asyncio
from collections import deque
from typing import Protocol

from virtual_phone.system.asyncio_wakeup import Wakeup

Buffer = bytes | memoryview
_ROOM = 1 << 18
"""`drain` waits while more than this many bytes are buffered."""


class Channel(Protocol):
    """One end of a connection, such as an ADB stream to the computer."""

    async def read(self) -> bytes:
        """The next chunk; empty at the end."""

    def write(self, data: Buffer) -> None:
        """Send bytes."""

    async def drain(self) -> None:
        """Wait until there is room for more."""

    def close(self) -> None:
        """Close both directions."""


class Pipe:
    """A one-way channel: bytes written at one end are read at the other."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._num_waiting = 0
        self._ended = False
        self._left = False
        self._changed = Wakeup()

    def write(self, data: Buffer) -> None:
        """Write bytes."""
        if self._left:
            raise BrokenPipeError(32, "Broken pipe")
        self._chunks.append(bytes(data))
        self._num_waiting += len(data)
        self._changed.notify()

    async def drain(self) -> None:
        """Wait until there is room for more."""
        while self._num_waiting > _ROOM and not self._left:
            await self._changed.wait()

    def write_eof(self) -> None:
        """End the output."""
        self._ended = True
        self._changed.notify()

    async def read(self) -> bytes:
        """Return everything written since the last read; empty at the end."""
        while not self._chunks and not self._ended:
            await self._changed.wait()
        if not self._chunks:
            return b""
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._num_waiting = 0
        self._changed.notify()
        return data

    def close_reader(self) -> None:
        """Stop reading; further writes fail."""
        self._left = True
        self._chunks.clear()
        self._num_waiting = 0
        self._changed.notify()


class PipeEnd:
    """One end of a connection made of two pipes."""

    def __init__(self, received: Pipe, sent: Pipe) -> None:
        self._received, self._sent = received, sent

    async def read(self) -> bytes:
        """Return everything received since the last read; empty at the end."""
        return await self._received.read()

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        self._sent.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self._sent.drain()

    def close(self) -> None:
        """Close both directions."""
        self._sent.write_eof()
        self._received.close_reader()


def connected() -> tuple[Channel, Channel]:
    """Create a connection within the phone; return its two ends."""
    one, other = Pipe(), Pipe()
    return PipeEnd(one, other), PipeEnd(other, one)


async def relay(one: Channel, other: Channel) -> None:
    """Copy bytes in both directions until either side ends, then close both."""
    copies = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        one.close()
        other.close()


async def _copy(source: Channel, sink: Channel) -> None:
    while data := await source.read():
        sink.write(data)
        await sink.drain()
