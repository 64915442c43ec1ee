"""Detect and undo what user code does to its process: closed standard streams, and forks.

The next file opened would reuse the descriptor of a closed stream, and receive all its output.
"""

import fcntl
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

_STREAMS, _NUMBERS = ("stdin", "stdout", "stderr"), (0, 1, 2)
_copies: dict[int, int] = {}
"""Duplicate descriptor of each standard stream, keyed by the stream's number."""
_lock = threading.Lock()


def remember_streams() -> None:
    """Duplicate the standard streams before user code runs."""
    with _lock:
        for number in _NUMBERS:
            copy = _copies.get(number)
            try:
                if copy is None or not os.path.sameopenfile(number, copy):
                    _copies[number] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(_STREAMS))
                    if copy is not None:
                        os.close(copy)
            # The stream may have been closed from the start, as in `agentrl ... 2>&-`.
            except OSError:
                continue


def reopen_closed_streams() -> list[str]:
    """Reopen standard streams that have been closed since `remember_streams`.

    Returns:
        The names of the reopened streams, such as `stdout`.
    """
    # A quick check first, because this runs after each step.
    try:
        for number in _NUMBERS:
            os.get_inheritable(number)
    except OSError:
        return [name for number, name in enumerate(_STREAMS) if _reopened(number, name)]
    return []


def _reopened(number: int, name: str) -> bool:
    try:
        os.get_inheritable(number)
    except OSError:
        with _lock:
            if number not in _copies:
                return False
            os.dup2(_copies[number], number)
            stream = getattr(sys, name)
            if stream is not None and stream.closed:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
            return True
    return False


class UserCodeGuard:
    """Protects the connections and streams of a process from the user code that it calls."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections, self._pid = connections, os.getpid()
        self._inodes = self._current_inodes()
        remember_streams()
        os.register_at_fork(after_in_child=self._close)

    def is_fork(self) -> bool:
        """Return whether this process was forked by a function."""
        return os.getpid() != self._pid

    def check(self, name: str) -> None:
        """Reopen closed standard streams, or exit if the process is no longer usable."""
        # After a fork, a function returns or raises in both processes.
        if self.is_fork():
            os._exit(0)
        with suppress(OSError):
            if self._inodes == self._current_inodes():
                reopen_closed_streams()
                return
        with suppress(OSError):
            os.write(2, f"reward {name} closed file descriptors that it had not opened\n".encode())
        os._exit(1)

    def _current_inodes(self) -> list[int]:
        return [os.fstat(connection.fileno()).st_ino for connection in self._connections]

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()
