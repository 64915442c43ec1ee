"""A command in a pseudo-terminal, as a person uses it."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path


class PseudoTerminal:
    """Runs a command; `shown` is its output since the last input.

    Args:
        command: the program and its arguments.
        env: environment variables.
        cwd: the current folder; None keeps it.
    """

    def __init__(
        self, *command: str, env: Mapping[str, str] = os.environ, cwd: Path | None = None
    ) -> None:
        self._own, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=_take_terminal, env={"TERM": "xterm", **env}, cwd=cwd,
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self._own, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < end, self.shown
            self._read()

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end, read the rest of the output and return the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, self.shown
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Read what is there; False at the end of the output."""
        if select.select([self._own], [], [], 0.1)[0]:
            try:
                self.shown += os.read(self._own, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                return False
            return True
        return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._own)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
