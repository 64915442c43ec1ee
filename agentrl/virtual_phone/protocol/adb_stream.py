"""One service in use on a connection: bytes come out of `read`, `write` sends them."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from agentrl.virtual_phone.protocol.packets import OKAY, WRTE, ProtocolError
from agentrl.virtual_phone.system.event import Bell

if TYPE_CHECKING:
    from agentrl.virtual_phone.protocol.device_connection import Connection

Buffer = bytes | memoryview

_ROOM = 1 << 20
"""So many bytes may wait to be sent before `drained` waits, too."""


class Stream:
    """Two directions of bytes; each side sends a packet only when its last one was taken."""

    def __init__(self, connection: "Connection", local: int, remote: int) -> None:
        """Made by its connection, with the ids of both ends.

        Args:
            connection: that it belongs to.
            local: id on the phone.
            remote: id at the client; 0 where the phone opens it and nobody has answered yet.
        """
        self.connection = connection
        self.local = local
        self.remote = remote
        self.closed = False
        self.task: asyncio.Task[None] | None = None
        self.ends_with_client = True
        """Whether all ends when the client leaves; else what it has sent can still be read."""
        self._out: deque[Buffer] = deque()
        self._num_waiting = 0
        self._waiting_for_ack = not remote
        self._finishing = False
        self._in: deque[bytes] = deque()
        self._data_came = Bell()
        self._room_came = Bell()

    async def read(self) -> bytes:
        """What came next; empty when the client has closed the stream.

        A packet is acknowledged when it is read: a client cannot flood the phone.
        """
        while not self._in:
            if self.closed:
                return b""
            await self._data_came.wait()
        data = self._in.popleft()
        self.connection.held -= len(data)
        if not self.closed:
            self.connection.send(OKAY, self.local, self.remote)
        return data

    def write(self, data: Buffer) -> None:
        """Send bytes, without a copy; they must not change any more.

        What is written at one go travels in one packet: each costs a wait for its answer. Who
        writes without end waits for `drained` in between.
        """
        if self.closed or not len(data):
            return
        if not self._out:
            self.connection.soon(self._pump)
        self._out.append(data)
        self._num_waiting += len(data)
        self.connection.held += len(data)
        if self.connection.is_full:  # the client takes nothing, and has much waiting
            self._drop(cancel=not self._finishing)
            self.connection.close_stream(self)

    async def drained(self) -> None:
        """Wait until little of what was written still waits for the client to take it."""
        while self._num_waiting > _ROOM and not self.closed:
            await self._room_came.wait()

    def end_output(self) -> None:
        """Nothing: ADB knows no stream that is closed in one direction."""

    def finish(self) -> None:
        """Close the stream when all that was written has been taken."""
        self._finishing = True
        self._pump()

    def on_data(self, data: bytes) -> None:
        """The client wrote.

        Raises:
            ProtocolError: it goes on writing without being answered.
        """
        if self._finishing:
            return
        self._in.append(data)
        self.connection.held += len(data)
        if self.connection.is_full:
            raise ProtocolError("data without end that nobody has acknowledged")
        self._data_came.ring()

    def on_ack(self, remote: int) -> None:
        """The client took the last packet, or opened what the phone asked for."""
        if self._waiting_for_ack:
            self.remote = self.remote or remote
            self._waiting_for_ack = False
            self._pump()

    def on_close(self) -> None:
        """The client is gone."""
        self._drop(cancel=self.ends_with_client and not self._finishing)

    def _drop(self, *, cancel: bool) -> None:
        """Forget what waits to be sent, and let nobody wait for more."""
        self.closed = True
        self.connection.held -= self._num_waiting
        self._out.clear()
        self._num_waiting = 0
        if cancel:
            self._forget_unread()
            if self.task is not None:
                self.task.cancel()
        self._data_came.ring()
        self._room_came.ring()

    def _pump(self) -> None:
        if self._waiting_for_ack or self.closed:
            return
        if self._out:
            self._waiting_for_ack = True
            self.connection.send(WRTE, self.local, self.remote, *self._next_payload())
            if self._num_waiting <= _ROOM:
                self._room_came.ring()
        elif self._finishing:
            self._forget_unread()
            self.closed = True
            self.connection.close_stream(self)

    def _forget_unread(self) -> None:
        self.connection.held -= sum(map(len, self._in))
        self._in.clear()

    def _next_payload(self) -> list[Buffer]:
        """As many of the waiting bytes as fit one packet."""
        room = self.connection.max_payload
        parts: list[Buffer] = []
        while self._out and room:
            part = self._out.popleft()
            if len(part) > room:
                view = memoryview(part)
                self._out.appendleft(view[room:])
                part = view[:room]
            parts.append(part)
            room -= len(part)
        num_taken = self.connection.max_payload - room
        self._num_waiting -= num_taken
        self.connection.held -= num_taken
        return parts
