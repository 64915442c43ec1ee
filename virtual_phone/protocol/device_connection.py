"""A connection from an adb server that multiplexes streams over packets.

It uses non-blocking sockets instead of asyncio transports, which copy whatever the kernel does not
accept immediately: most of a frame.
"""

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice

from virtual_phone.protocol import adb_packets
from virtual_phone.protocol.adb_auth import AdbAuthenticator
from virtual_phone.protocol.adb_packets import (
    AUTH,
    CLSE,
    CNXN,
    OKAY,
    OPEN,
    WRTE,
    Packet,
    ProtocolError,
)
from virtual_phone.protocol.adb_stream import Stream
from virtual_phone.system.byte_channels import Buffer

_PIECES_AT_ONCE = 16
log = logging.getLogger(__name__)
Open = Callable[[Stream, str], Coroutine[None, None, None] | None]
"""Returns the coroutine that serves a stream, or None if the service does not exist."""
_HANDSHAKE_S = 10.0
_LOG_INTERVAL_S = 60.0
_MAX_STREAMS = 1024
_MAX_HELD = 128 << 20
"""Bytes buffered per connection in both directions: enough for eight of the largest frames."""
_MAX_UNSENT_PIECES = 512
"""Stop reading from a client while more pieces than this are waiting to be sent to it."""
_MIN_PAYLOAD = 4096


class _LimitedLog:
    """Logs at most one warning per minute, with the number of warnings skipped since."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._num_skipped = 0

    def warn(self, message: str) -> None:
        if (now := time.monotonic()) < self._next_s:
            self._num_skipped += 1
            return
        more = f" ({self._num_skipped} more since the last warning)" if self._num_skipped else ""
        log.warning("%s%s", message, more)
        self._next_s, self._num_skipped = now + _LOG_INTERVAL_S, 0


_junk = _LimitedLog()
"""Shared by the process: port scanners reach all of its phones."""


class SendQueue:
    """Sends pieces in order, as fast as the peer accepts them."""

    def __init__(
        self,
        sock: socket.socket,
        on_sent: Callable[[int], None],
        on_empty: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._on_sent = on_sent
        self._on_empty = on_empty
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[Buffer] = deque()
        self._is_scheduled = self._has_writer = False
        """Whether a flush is pending, and whether it waits for the socket to become writable."""

    def __len__(self) -> int:
        """Number of queued pieces."""
        return len(self._pieces)

    def put(self, *pieces: Buffer) -> None:
        """Queue pieces; all pieces from one event-loop iteration are sent together."""
        self._pieces.extend(pieces)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send as much as the socket accepts, and drop the rest; the socket stays open."""
        self._loop.remove_writer(self._sock)
        with contextlib.suppress(OSError):
            self._send()
        self._pieces.clear()
        self._is_scheduled = True

    def _send(self) -> None:
        while self._pieces:
            self._drop(self._sock.sendmsg(list(islice(self._pieces, _PIECES_AT_ONCE))))

    def _flush(self) -> None:
        if self._sock.fileno() < 0:  # closed in the meantime
            return
        try:
            self._send()
        except BlockingIOError:
            if not self._has_writer:
                self._loop.add_writer(self._sock, self._flush)
                self._has_writer = True
            return
        except OSError:
            self._on_broken()
            return
        if self._has_writer:
            self._loop.remove_writer(self._sock)
        self._is_scheduled = self._has_writer = False
        self._on_empty()

    def _drop(self, num_sent: int) -> None:
        """Remove sent bytes from the queue."""
        self._on_sent(num_sent)
        while num_sent:
            first = self._pieces.popleft()
            if len(first) > num_sent:
                self._pieces.appendleft(memoryview(first)[num_sent:])
                return
            num_sent -= len(first)


class DeviceConnection:
    """An adb server's connection to a phone."""

    def __init__(
        self,
        sock: socket.socket,
        banner: str,
        open_service: Open,
        on_lost: Callable[["DeviceConnection"], None],
        authenticator: AdbAuthenticator | None = None,
    ) -> None:
        """Take over a connected socket and serve it until it closes.

        Args:
            sock: the socket, which becomes non-blocking.
            banner: the phone's self-description, `device::...`.
            open_service: returns the coroutine for a service that the client opens.
            on_lost: called once, when the connection is over.
            authenticator: authenticates the client; None accepts every client.
        """
        self.max_payload = adb_packets.MAX_PAYLOAD
        self._peer_version = adb_packets.OLDEST_VERSION
        self.held = 0
        """Bytes buffered in both directions."""
        self.is_online = False
        """Whether the handshake is complete and the client has been accepted."""
        self._sock = sock
        self._banner = banner
        self._open_service = open_service
        self._on_lost = on_lost
        self._authenticator = authenticator
        self._loop = asyncio.get_running_loop()
        self._parser = adb_packets.PacketParser()
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self._out = SendQueue(sock, self._on_sent, self._read_on, self.close)
        self._inbox = memoryview(bytearray(1 << 16))
        self._is_reading = True
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._loop.add_reader(sock, self._on_readable)
        self._handshake_timer = self._loop.call_later(_HANDSHAKE_S, self.close)

    @property
    def is_full(self) -> bool:
        """Whether more bytes are buffered than a well-behaved client would leave."""
        return self.held > _MAX_HELD

    def close(self) -> None:
        """Drop the connection and everything open on it."""
        if self._sock.fileno() < 0:
            return
        self._handshake_timer.cancel()
        self._loop.remove_reader(self._sock)
        self._out.close()
        self._sock.close()
        for stream in list(self._streams.values()):
            stream.on_close()
        self._streams.clear()
        self._on_lost(self)

    def send(self, command: int, arg0: int, arg1: int, *payload: Buffer) -> None:
        """Send one packet; the payload may be given in several pieces."""
        if self._sock.fileno() < 0:
            return
        length = sum(map(len, payload))
        self.held += adb_packets.HEADER.size + length
        # Older peers, such as adb-shell, verify checksums; newer peers expect zero.
        is_old = self._peer_version < adb_packets.VERSION
        checksum = adb_packets.checksum(*payload) if is_old else 0
        self._out.put(adb_packets.header(command, arg0, arg1, length, checksum), *payload)
        if len(self._out) > _MAX_UNSENT_PIECES and self._is_reading:
            self._loop.remove_reader(self._sock)
            self._is_reading = False

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Schedule a callback; 0 seconds means the next iteration of the event loop."""
        if seconds:
            self._loop.call_later(seconds, act)
        else:
            self._loop.call_soon(act)

    def open(self, service: str) -> Stream:
        """Open a service on the client's side, such as a reversed port."""
        stream = self._new_stream(0)
        stream.outlives_client_s = math.inf
        self.send(OPEN, stream.local, 0, service.encode("utf-8", "surrogateescape") + b"\0")
        return stream

    def close_stream(self, stream: Stream) -> None:
        """Notify the client that a stream has ended."""
        if self._streams.pop(stream.local, None) is not None:
            self.send(CLSE, stream.local, stream.remote)

    def _new_stream(self, remote: int) -> Stream:
        stream = Stream(self, self._next_id, remote)
        self._next_id = self._next_id % 0xFFFFFFFF + 1
        self._streams[stream.local] = stream
        return stream

    def _on_sent(self, num_bytes: int) -> None:
        self.held -= num_bytes

    def _read_on(self) -> None:
        """Resume reading, if paused, now that the send queue is empty."""
        if not self._is_reading:
            self._loop.add_reader(self._sock, self._on_readable)
            self._is_reading = True

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
                if self._sock.fileno() >= 0:
                    self._on_packet(packet)
        except ProtocolError as error:
            _junk.warn(f"connection dropped: {error}")
            self.close()

    def _on_packet(self, packet: Packet) -> None:
        if self.is_online and packet.command in (OKAY, WRTE, CLSE):
            self._on_stream_packet(packet)
        elif self.is_online and packet.command == OPEN:
            self._on_open(packet)
        elif packet.command == CNXN:
            self._on_connect(packet)
        elif packet.command == AUTH and self._authenticator is not None and not self.is_online:
            self._answer_handshake(self._authenticator.reply(packet.arg0, packet.payload))

    def _on_connect(self, packet: Packet) -> None:
        """Handle the client's CNXN packet; a repeated CNXN restarts the connection."""
        for stream in list(self._streams.values()):
            stream.on_close()
        self._streams.clear()
        self.is_online = False
        self._peer_version = packet.arg0
        self.max_payload = max(_MIN_PAYLOAD, min(adb_packets.MAX_PAYLOAD, packet.arg1))
        self._handshake_timer.cancel()
        self._answer_handshake(
            None if self._authenticator is None else self._authenticator.challenge()
        )

    def _answer_handshake(self, challenge: bytes | None) -> None:
        """Accept the client if `challenge` is None, send a non-empty token, or do nothing."""
        if challenge is None:
            self.is_online = True
            self.send(CNXN, adb_packets.VERSION, adb_packets.MAX_PAYLOAD, self._banner.encode())
        elif challenge:
            self.send(AUTH, adb_packets.AUTH_TOKEN, 0, challenge)

    def _on_open(self, packet: Packet) -> None:
        if not packet.arg0 or len(self._streams) >= _MAX_STREAMS:
            self.send(CLSE, 0, packet.arg0)
            return
        stream = self._new_stream(packet.arg0)
        service = packet.payload.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        job = self._open_service(stream, service)
        if job is None:
            del self._streams[stream.local]
            self.send(CLSE, 0, packet.arg0)
            return
        self.send(OKAY, stream.local, stream.remote)
        stream.task = self._loop.create_task(self._serve(stream, service, job))
        # Nothing else closes the coroutine if the task is cancelled before it starts.
        stream.task.add_done_callback(lambda _: job.close())

    async def _serve(self, stream: Stream, service: str, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except Exception:
            # A bug in one service must not take down the phone; log it prominently instead.
            log.exception("service %r failed", service)
        finally:
            stream.close()

    def _on_stream_packet(self, packet: Packet) -> None:
        stream = self._streams.get(packet.arg1)
        # A stream that just ended may still get packets; a stream opened here has no peer id yet.
        if stream is None or stream.remote not in (packet.arg0, 0):
            if packet.command == WRTE:
                self.send(CLSE, 0, packet.arg0)
        elif packet.command == OKAY:
            stream.on_ack(packet.arg0)
        elif packet.command == WRTE:
            stream.on_data(packet.payload)
        else:
            del self._streams[stream.local]
            stream.on_close()
            self.send(CLSE, stream.local, stream.remote)
