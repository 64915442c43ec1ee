"""Bytes between two programs on one phone."""

import asyncio
from collections import deque
from typing import Protocol

from agentrl.virtual_phone.protocol.adb_stream import Buffer
from agentrl.virtual_phone.system.event import Bell

_ROOM = 1 << 18
"""So many bytes may wait before `drained` waits."""


class Channel(Protocol):
    """One end of a connection: a stream to the computer, or a pipe within the phone."""

    async def read(self) -> bytes:
        """What came next; empty at the end."""

    def write(self, data: Buffer) -> None:
        """Send bytes."""

    async def drained(self) -> None:
        """Wait until there is room for more."""

    def end_output(self) -> None:
        """Send no more, but go on reading, where that can be told to the other side."""

    def finish(self) -> None:
        """Send no more, and read no more."""


class Pipe:
    """One direction: what is written at one end is read at the other."""

    def __init__(self) -> None:
        """Nothing is in it yet."""
        self._chunks: deque[bytes] = deque()
        self._num_waiting = 0
        self._ended = False
        self._left = False
        self._changed = Bell()

    def write(self, data: Buffer) -> None:
        """Put bytes in.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        if self._left:
            raise BrokenPipeError(32, "Broken pipe")
        self._chunks.append(bytes(data))
        self._num_waiting += len(data)
        self._changed.ring()

    async def drained(self) -> None:
        """Wait until there is room for more."""
        while self._num_waiting > _ROOM and not self._left:
            await self._changed.wait()

    def finish(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._changed.ring()

    async def read(self) -> bytes:
        """What came next; empty at the end."""
        while not self._chunks and not self._ended:
            await self._changed.wait()
        if not self._chunks:
            return b""
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._num_waiting = 0
        self._changed.ring()
        return data

    def leave(self) -> None:
        """Nobody reads any more."""
        self._left = True
        self._chunks.clear()
        self._num_waiting = 0
        self._changed.ring()


class Socket:
    """One end of a connection between two programs on the phone."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        """Made by `socket_pair`."""
        self._incoming = incoming
        self._outgoing = outgoing
        self.read = incoming.read
        self.drained = outgoing.drained

    def write(self, data: Buffer) -> None:
        """Send bytes; they are lost when the other side has left."""
        try:
            self._outgoing.write(data)
        except BrokenPipeError:
            self._incoming.finish()

    def end_output(self) -> None:
        """Send no more: the other side reads what was sent and then the end."""
        self._outgoing.finish()

    def finish(self) -> None:
        """Leave: the other side reads what was sent and then the end."""
        self._outgoing.finish()
        self._incoming.leave()


def socket_pair() -> tuple[Socket, Socket]:
    """The two ends of a new connection."""
    there, back = Pipe(), Pipe()
    return Socket(there, back), Socket(back, there)


async def splice(one: Channel, other: Channel) -> None:
    """Carry bytes both ways until either side ends; then the other ends, too."""
    ways = [asyncio.create_task(_carry(one, other)), asyncio.create_task(_carry(other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        one.finish()
        other.finish()


async def _carry(source: Channel, sink: Channel) -> None:
    while data := await source.read():
        sink.write(data)
        await sink.drained()
