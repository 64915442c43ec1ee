"""An open service of an ADB connection, as a pair of byte streams."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from virtual_phone.protocol.adb_packets import OKAY, WRTE, ProtocolError
from virtual_phone.system.asyncio_wakeup import Wakeup
from virtual_phone.system.byte_channels import Buffer

_ROOM = 1 << 20
"""`drain` waits while more than this many bytes are queued."""


class StreamConnection(Protocol):
    """Connection that carries a stream."""

    max_payload: int
    """Largest payload of a packet, in bytes."""
    held: int
    """Bytes buffered in both directions."""

    @property
    def is_full(self) -> bool:
        """Whether more bytes are buffered than a well-behaved client would leave."""

    def close(self) -> None:
        """Drop the connection and everything open on it."""

    def send(self, command: int, arg0: int, arg1: int, *payload: Buffer) -> None:
        """Send one packet; the payload may be given in several pieces."""

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Schedule a callback; 0 seconds means the next iteration of the event loop."""

    def open(self, service: str) -> "Stream":
        """Open a service on the client's side, such as a reversed port."""

    def close_stream(self, stream: "Stream") -> None:
        """Notify the client that a stream has ended."""


class Stream:
    """A stream of an ADB connection; each side waits for an ack before it sends another packet."""

    def __init__(self, connection: StreamConnection, local: int, remote: int) -> None:
        self.connection = connection
        self.local = local
        self.remote = remote
        self.closed = False
        self.task: asyncio.Task[None] | None = None
        self.outlives_client_s = 0.0
        """Seconds the task may run after the client has closed, to process buffered data."""
        self.gather_s = 0.0
        """Output within this many seconds is combined into one packet, unless the service ends,
        waits for input or fills a packet in the meantime."""
        self._out: deque[Buffer] = deque()
        self._num_waiting = 0
        self._waiting_for_ack = not remote
        self._finishing = False
        self._in: deque[bytes] = deque()
        self._data_arrived = Wakeup()
        self._output_taken = Wakeup()

    async def read(self) -> bytes:
        """Return the next chunk; empty once the client has closed the stream.

        Packets are acknowledged only when read, so that a client cannot flood the phone.
        """
        while not self._in:
            if self.closed:
                return b""
            self._pump()
            await self._data_arrived.wait()
        data = self._in.popleft()
        self.connection.held -= len(data)
        if not self.closed:
            self.connection.send(OKAY, self.local, self.remote)
        return data

    def write(self, data: Buffer) -> None:
        """Queue bytes without copying them; do not change the buffer afterwards.

        Everything written before the event loop runs again, or within `gather_s`, is combined into
        one packet, because each packet costs a round trip. Unbounded writers must await `drain`
        between writes.
        """
        if self.closed or not len(data):
            return
        if not self._out:
            self.connection.later(self.gather_s, self._pump)
        self._out.append(data)
        self._num_waiting += len(data)
        self.connection.held += len(data)
        # A client that opens streams without reading from them would exhaust the memory.
        if self.connection.is_full:  # the client has stopped reading
            self._drop(cancel=not self._finishing)
            self.connection.close_stream(self)

    async def drain(self) -> None:
        """Wait until the client has taken most of the output."""
        while self._num_waiting > _ROOM and not self.closed:
            self._pump()  # immediately: there is enough for a packet
            await self._output_taken.wait()

    def close(self) -> None:
        """Close the stream once the client has taken all output."""
        self._finishing = True
        self._pump()

    def on_data(self, data: bytes) -> None:
        """Handle data sent by the client."""
        if self._finishing:
            return
        self._in.append(data)
        self.connection.held += len(data)
        if self.connection.is_full:
            raise ProtocolError("the client sends data without waiting for acknowledgments")
        self._data_arrived.notify()

    def on_ack(self, remote: int) -> None:
        """Handle an ack of the last packet, or of a stream that the phone opened."""
        if self._waiting_for_ack:
            self.remote = self.remote or remote
            self._waiting_for_ack = False
            self._pump()

    def on_close(self) -> None:
        """Handle the end of the stream, closed by the client or lost with its connection."""
        self._drop(cancel=not self.outlives_client_s and not self._finishing)
        if self.task is not None and not self.task.done() and 0 < self.outlives_client_s < math.inf:
            self.connection.later(self.outlives_client_s, self.task.cancel)

    def _drop(self, *, cancel: bool) -> None:
        """Drop queued output and wake everything waiting on the stream."""
        self.closed = True
        self.connection.held -= self._num_waiting
        self._out.clear()
        self._num_waiting = 0
        if cancel:
            self._forget_unread()
            if self.task is not None:
                self.task.cancel()
        self._data_arrived.notify()
        self._output_taken.notify()

    def _pump(self) -> None:
        if self._waiting_for_ack or self.closed:
            return
        if self._out:
            # Only one packet may be unacknowledged: the phone does not offer `delayed_ack`.
            self._waiting_for_ack = True
            self.connection.send(WRTE, self.local, self.remote, *self._next_payload())
            if self._num_waiting <= _ROOM:
                self._output_taken.notify()
        elif self._finishing:
            self._forget_unread()
            self.closed = True
            self.connection.close_stream(self)

    def _forget_unread(self) -> None:
        self.connection.held -= sum(map(len, self._in))
        self._in.clear()

    def _next_payload(self) -> list[Buffer]:
        """Take queued bytes, up to the size of one packet."""
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
