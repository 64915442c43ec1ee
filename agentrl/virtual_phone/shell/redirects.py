"""Where a command reads from and writes to: its streams and redirections."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agentrl.virtual_phone.shell.syntax_tree import Redirect
from agentrl.virtual_phone.system.file_system import FileSystem, normalize_path

Write = Callable[[bytes | memoryview], None]
Read = Callable[[], Awaitable[bytes]]
"""Returns the next chunk of standard input; empty at its end."""
Drain = Callable[[], Awaitable[None]]
"""Waits until there is room for more output."""


async def no_input() -> bytes:
    """Standard input of a command without input."""
    return b""


async def never_full() -> None:
    """There is always room."""


def _discard(data: bytes | memoryview) -> None:
    """`/dev/null`."""


@dataclass(slots=True, kw_only=True, frozen=True)
class CommandIO:
    """The three streams of a command."""

    out: Write
    err: Write
    read: Read = no_input
    drain: Drain = never_full


class Redirects:
    """The redirections of one command; it writes their files when the command has ended."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        """Start without redirections.

        Args:
            files: the phone's file system.
            folder: the working directory.
        """
        self._files = files
        self._folder = folder
        self._written: list[tuple[str, _Output]] = []

    def apply(self, redirect: Redirect, target: str, io: CommandIO) -> CommandIO:
        """The streams after one more redirection.

        Raises:
            OSError: a file cannot be opened.
        """
        if redirect.operator == ">&":
            known = {"1": io.out, "2": io.err}
            return self._with(redirect.fd, known.get(target, _discard), io)
        if redirect.operator == "<":
            return replace(io, read=self._reader(target))
        if target == "/dev/null":
            return self._with(redirect.fd, _discard, io)
        path = normalize_path(target, self._folder)
        old = self._files.find(path) if redirect.operator == ">>" else None
        content = (old.content or b"") if old is not None else b""
        self._files.write(path, content)
        output = _Output(self._files.num_free, content)
        self._written.append((path, output))
        return self._with(redirect.fd, output.write, io)

    def write(self) -> None:
        """Write the files.

        Raises:
            OSError: the phone has no space for them.
        """
        for path, output in self._written:
            self._files.write(path, b"".join(output.chunks))

    def _with(self, fd: int, write: Write, io: CommandIO) -> CommandIO:
        if fd == 1:
            return replace(io, out=write, drain=never_full)
        return replace(io, err=write) if fd == 2 else io

    def _reader(self, target: str) -> Read:
        """Returns the file's content once, then end of input."""
        path = normalize_path(target, self._folder)
        left = [] if target == "/dev/null" else [self._files.read(path)]

        async def read() -> bytes:
            return left.pop() if left else b""

        return read


class _Output:
    """Collects what a command writes to a file, up to the phone's free space."""

    def __init__(self, num_free: int, start: bytes) -> None:
        self.chunks: list[bytes | memoryview] = [start]
        self._num_free = num_free

    def write(self, data: bytes | memoryview) -> None:
        self._num_free -= len(data)
        if self._num_free < 0:
            raise OSError(28, "No space left on device")
        self.chunks.append(data)
