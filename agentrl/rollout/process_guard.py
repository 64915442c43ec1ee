"""Notice what a reward function did to the process that calls it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from agentrl.standard_streams import remember_streams, reopen_closed_streams


class ProcessGuard:
    """Keeps forked processes away from the connections, and checks the process after each call.

    Args:
        connections: those to the parent, which only this process may use.
    """

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections, self._pid = connections, os.getpid()
        self._inodes = self._current_inodes()
        remember_streams()
        os.register_at_fork(after_in_child=self._close)

    def is_fork(self) -> bool:
        """Whether this is a process that a function has forked."""
        return os.getpid() != self._pid

    def check(self, name: str) -> None:
        """Open closed standard streams again, or end the process if it cannot be used any more.

        Args:
            name: of the function that was called.
        """
        if self.is_fork():  # the function returned, or raised, in both processes
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
