"""One connection from an adb server: packets in, streams out.

Written on non-blocking sockets and not on asyncio's transports: these copy what the kernel does
not take at once, which is most of a frame.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine

from agentrl.phone import packets
from agentrl.phone.packets import CLSE, CNXN, OKAY, OPEN, WRTE, Packet, ProtocolError

log = logging.getLogger(__name__)

Buffer = bytes | memoryview
Open = Callable[["Stream", str], Coroutine[None, None, None] | None]
"""Gives the coroutine that serves a stream, or None for a service that does not exist."""


class Stream:
    """One service in use: what the client writes comes out of `read`, `write` goes to it."""

    def __init__(self, connection: "Connection", local: int, remote: int) -> None:
        """Made by its connection, with the ids of both ends."""
        self.local = local
        self.remote = remote
        self.closed = False
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._out: deque[Buffer] = deque()
        self._waiting_for_ack = False
        self._finishing = False
        self._in: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read(self) -> bytes:
        """What came next; empty when the client has closed the stream.

        A packet is acknowledged when it is read: a client cannot flood the phone.
        """
        data = None if self.closed and self._in.empty() else await self._in.get()
        if data is None:
            return b""
        if not self.closed:
            self._connection.send(OKAY, self.local, self.remote)
        return data

    def write(self, data: Buffer) -> None:
        """Send bytes, without a copy; they must not change any more.

        What is written at one go travels in one packet: each costs a wait for its answer.
        """
        if not self.closed and len(data):
            if not self._out:
                self._connection.soon(self._pump)
            self._out.append(data)

    def finish(self) -> None:
        """Close the stream when all that was written has been taken."""
        self._finishing = True
        self._pump()

    def on_data(self, data: bytes) -> None:
        """The client wrote."""
        self._in.put_nowait(data)

    def on_ack(self) -> None:
        """The client took the last packet."""
        self._waiting_for_ack = False
        self._pump()

    def on_close(self) -> None:
        """The client is gone."""
        self.closed = True
        self._out.clear()
        self._in.put_nowait(None)
        if self.task is not None and not self._finishing:
            self.task.cancel()

    def _pump(self) -> None:
        if self._waiting_for_ack or self.closed:
            return
        if self._out:
            self._waiting_for_ack = True
            self._connection.send(WRTE, self.local, self.remote, *self._next_payload())
        elif self._finishing:
            self.closed = True
            self._connection.close_stream(self)

    def _next_payload(self) -> list[Buffer]:
        """As many of the waiting bytes as fit one packet."""
        room = self._connection.max_payload
        parts: list[Buffer] = []
        while self._out and room:
            part = self._out.popleft()
            if len(part) > room:
                view = memoryview(part)
                self._out.appendleft(view[room:])
                part = view[:room]
            parts.append(part)
            room -= len(part)
        return parts


class Connection:
    """One adb server's connection to a phone."""

    def __init__(
        self,
        sock: socket.socket,
        banner: str,
        open_service: Open,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        """Take over a connected socket and serve it until it closes.

        Args:
            sock: becomes non-blocking.
            banner: who the phone says it is, `device::...`.
            open_service: answers what a client opens.
            on_lost: called once, when the connection is over.
        """
        self.max_payload = packets.MAX_PAYLOAD
        self._sock = sock
        self._banner = banner
        self._open_service = open_service
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._parser = packets.Parser()
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self._out: deque[Buffer] = deque()
        self._inbox = memoryview(bytearray(1 << 16))
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(sock, self._on_readable)

    def close(self) -> None:
        """Drop the connection and everything open on it."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for stream in list(self._streams.values()):
            stream.on_close()
        self._streams.clear()
        self._on_lost(self)

    def send(self, command: int, arg0: int, arg1: int, *payload: Buffer) -> None:
        """Send one packet whose payload may stand in several pieces."""
        if self._sock.fileno() < 0:
            return
        idle = not self._out
        self._out.append(packets.header(command, arg0, arg1, sum(map(len, payload))))
        self._out.extend(payload)
        if idle:
            self._flush()

    def soon(self, act: Callable[[], None]) -> None:
        """Do something when what runs now has come to its end or waits."""
        self._loop.call_soon(act)

    def close_stream(self, stream: Stream) -> None:
        """Tell the client that a stream has ended."""
        if self._streams.pop(stream.local, None) is not None:
            self.send(CLSE, stream.local, stream.remote)

    def _flush(self) -> None:
        try:
            while self._out:
                self._drop_sent(self._sock.sendmsg(list(self._out)[:16]))
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._flush)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._sock)

    def _drop_sent(self, sent: int) -> None:
        while sent:
            first = self._out.popleft()
            if len(first) > sent:
                self._out.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)

    def _on_readable(self) -> None:
        try:
            count = self._sock.recv_into(self._inbox)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        try:
            for packet in self._parser.feed(self._inbox[:count]):
                self._on_packet(packet)
        except ProtocolError as error:
            log.warning("connection dropped: %s", error)
            self.close()

    def _on_packet(self, packet: Packet) -> None:
        if packet.command == CNXN:
            self.max_payload = max(1, min(packets.MAX_PAYLOAD, packet.arg1))
            self.send(CNXN, packets.VERSION, packets.MAX_PAYLOAD, self._banner.encode())
        elif packet.command == OPEN:
            self._on_open(packet)
        elif packet.command in (OKAY, WRTE, CLSE):
            self._on_stream_packet(packet)

    def _on_open(self, packet: Packet) -> None:
        stream = Stream(self, self._next_id, packet.arg0)
        service = packet.payload.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        job = self._open_service(stream, service)
        if job is None:
            self.send(CLSE, 0, packet.arg0)
            return
        self._next_id += 1
        self._streams[stream.local] = stream
        self.send(OKAY, stream.local, stream.remote)
        stream.task = self._loop.create_task(self._serve(stream, service, job))

    async def _serve(self, stream: Stream, service: str, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except Exception:
            # A bug in one service must not take the phone down; it is loud in the host's log.
            log.exception("service %r failed", service)
        finally:
            stream.finish()

    def _on_stream_packet(self, packet: Packet) -> None:
        stream = self._streams.get(packet.arg1)
        if stream is None:
            if packet.command == WRTE:
                self.send(CLSE, 0, packet.arg0)
        elif packet.command == OKAY:
            stream.on_ack()
        elif packet.command == WRTE:
            stream.on_data(packet.payload)
        else:
            del self._streams[stream.local]
            stream.on_close()
            self.send(CLSE, stream.local, stream.remote)
