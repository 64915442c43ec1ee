"""What waits to go out on a socket: pieces of bytes, sent without a copy."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice

from agentrl.virtual_phone.protocol.adb_stream import Buffer

_PIECES_AT_ONCE = 16


class Outbox:
    """Sends pieces in their order, as fast as the other side takes them."""

    def __init__(
        self,
        sock: socket.socket,
        on_sent: Callable[[int], None],
        on_empty: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        """Nothing waits yet.

        Args:
            sock: non-blocking.
            on_sent: called with the number of bytes that went out.
            on_empty: called when nothing waits any more.
            on_broken: called when the other side is gone.
        """
        self._sock = sock
        self._on_sent = on_sent
        self._on_empty = on_empty
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[Buffer] = deque()

    def __len__(self) -> int:
        """How many pieces wait."""
        return len(self._pieces)

    def put(self, *pieces: Buffer) -> None:
        """Send pieces, at once where nothing waits before them."""
        idle = not self._pieces
        self._pieces.extend(pieces)
        if idle:
            self._flush()

    def close(self) -> None:
        """Forget what waits; the socket is still open."""
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
        """Take off what has been sent."""
        self._on_sent(num_sent)
        while num_sent:
            first = self._pieces.popleft()
            if len(first) > num_sent:
                self._pieces.appendleft(memoryview(first)[num_sent:])
                return
            num_sent -= len(first)
