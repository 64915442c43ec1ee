"""The send queue of a socket; pieces are sent without being copied."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice

from agentrl.virtual_phone.protocol.adb_stream import Buffer

_PIECES_AT_ONCE = 16


class SendQueue:
    """Sends pieces in order, as fast as the other side accepts them."""

    def __init__(
        self,
        sock: socket.socket,
        on_sent: Callable[[int], None],
        on_empty: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        """Start with an empty queue.

        Args:
            sock: non-blocking.
            on_sent: called with the number of bytes sent.
            on_empty: called when the queue becomes empty.
            on_broken: called when the connection is lost.
        """
        self._sock = sock
        self._on_sent = on_sent
        self._on_empty = on_empty
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[Buffer] = deque()

    def __len__(self) -> int:
        """Number of queued pieces."""
        return len(self._pieces)

    def put(self, *pieces: Buffer) -> None:
        """Queue pieces; they are sent immediately if the queue was empty."""
        idle = not self._pieces
        self._pieces.extend(pieces)
        if idle:
            self._flush()

    def close(self) -> None:
        """Drop the queue; the socket stays open."""
        self._loop.remove_writer(self._sock)
        self._pieces.clear()

    def _flush(self) -> None:
        try:
            while self._pieces:
                self._drop(self._sock.sendmsg(list(islice(self._pieces, _PIECES_AT_ONCE))))
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._flush)
            return
        except OSError:
            self._on_broken()
            return
        self._loop.remove_writer(self._sock)
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
