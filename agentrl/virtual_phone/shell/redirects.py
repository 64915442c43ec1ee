"""Where a command reads from and writes to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agentrl.virtual_phone.shell.shell_parser import Redirect
from agentrl.virtual_phone.system.file_system import Files, normal

Write = Callable[[bytes | memoryview], None]
Read = Callable[[], Awaitable[bytes]]
"""Gives what comes next on standard input, empty at its end."""
Drained = Callable[[], Awaitable[None]]
"""Waits until there is room for more output."""


async def no_input() -> bytes:
    """Standard input of a command that has none."""
    return b""


async def always_drained() -> None:
    """There is always room."""


def _discard(data: bytes | memoryview) -> None:
    """`/dev/null`."""


@dataclass(slots=True, kw_only=True, frozen=True)
class IO:
    """The three streams of a command."""

    out: Write
    err: Write
    read: Read = no_input
    drained: Drained = always_drained


class Redirects:
    """The redirections of one command, and the files that it writes when it has ended."""

    def __init__(self, files: Files, folder: str) -> None:
        """None yet.

        Args:
            files: of the phone.
            folder: that paths start from.
        """
        self._files = files
        self._folder = folder
        self._written: list[tuple[str, _Output]] = []

    def apply(self, redirect: Redirect, target: str, io: IO) -> IO:
        """The streams as one more redirection makes them.

        Raises:
            OSError: a file that cannot be opened.
        """
        if redirect.operator == ">&":
            known = {"1": io.out, "2": io.err}
            return self._with(redirect.fd, known.get(target, _discard), io)
        if redirect.operator == "<":
            return replace(io, read=self._reader(target))
        if target == "/dev/null":
            return self._with(redirect.fd, _discard, io)
        path = normal(target, self._folder)
        old = self._files.find(path) if redirect.operator == ">>" else None
        content = (old.content or b"") if old is not None else b""
        self._files.write(path, content)
        output = _Output(self._files.num_free, content)
        self._written.append((path, output))
        return self._with(redirect.fd, output.write, io)

    def write(self) -> None:
        """Write the files.

        Raises:
            OSError: there is no room for them.
        """
        for path, output in self._written:
            self._files.write(path, b"".join(output.chunks))

    def _with(self, fd: int, write: Write, io: IO) -> IO:
        if fd == 1:
            return replace(io, out=write, drained=always_drained)
        return replace(io, err=write) if fd == 2 else io

    def _reader(self, target: str) -> Read:
        """Reads a file once."""
        path = normal(target, self._folder)
        left = [] if target == "/dev/null" else [self._files.read(path)]

        async def read() -> bytes:
            return left.pop() if left else b""

        return read


class _Output:
    """What a command writes to a file, as long as there is room on the phone."""

    def __init__(self, num_free: int, start: bytes) -> None:
        self.chunks: list[bytes | memoryview] = [start]
        self._num_free = num_free

    def write(self, data: bytes | memoryview) -> None:
        self._num_free -= len(data)
        if self._num_free < 0:
            raise OSError(28, "No space left on device")
        self.chunks.append(data)
