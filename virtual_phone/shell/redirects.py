"""Streams of a command, and their redirections."""

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from virtual_phone.shell.syntax_tree import Redirect
from virtual_phone.system.file_system import FileSystem, normalize_path

Write = Callable[[bytes | memoryview], None]
Read = Callable[[], Awaitable[bytes]]
"""Returns the next chunk of standard input; empty at its end."""
Drain = Callable[[], Awaitable[None]]
"""Waits until there is room for more output."""


async def no_input() -> bytes:
    """Return the end of input, for a command without input."""
    return b""


async def never_full() -> None:
    """Return immediately: there is always room."""


def _discard(data: bytes | memoryview) -> None:
    """Discard output, as `/dev/null` does."""


class Input:
    """Standard input to which a command can return excess data."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._returned = b""

    async def __call__(self) -> bytes:
        """Return the next chunk; empty at the end."""
        data, self._returned = self._returned, b""
        return data or await self._read()

    async def through(self, end: re.Pattern[bytes], most: int) -> bytes:
        """Return the data through the first match of `end`, or the rest if there is none.

        Data without a match is returned once it has more than `most` bytes.
        """
        data = b""
        while chunk := await self():
            data += chunk
            found = end.search(data)
            if found is not None or len(data) > most:
                last = len(data) if found is None else found.end()
                self.put_back(data[last:])
                return data[:last]
        return data

    def put_back(self, data: bytes) -> None:
        """Return bytes, for the next reader to read first."""
        self._returned = data + self._returned


NO_INPUT = Input(no_input)
"""Input of commands without standard input."""


@dataclass(slots=True, kw_only=True)
class Terminal:
    """The terminal of an interactive shell; a client may change its size at any time."""

    rows: int = 24
    columns: int = 80


class CommandIO(NamedTuple):
    """The streams of a command."""

    out: Write
    err: Write
    read: Input = NO_INPUT
    drain: Drain = never_full
    others: Mapping[int, Write | Input] = {}
    """Open streams by file descriptor, above 2."""
    terminal: Terminal | None = None
    """Terminal of the standard streams; None if they are not connected to a terminal."""


class Redirects:
    """Redirections of one command; the files are written once the command has ended."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._written: list[tuple[str, _Output]] = []

    def apply(self, redirect: Redirect, target: str, io: CommandIO) -> CommandIO:
        """Return the streams with one more redirection applied."""
        fd = redirect.fd
        if redirect.operator in (">&", "<&"):
            return self._duplicate(fd, target, io)
        if redirect.operator in ("<<", "<<-", "<<<"):
            text = target + "\n" * (redirect.operator == "<<<")
            return self._reading(fd, text.encode("utf-8", "surrogateescape"), io)
        if redirect.operator == "<":
            path = normalize_path(target, self._folder)
            return self._reading(fd, b"" if path == "/dev/null" else self._files.read(path), io)
        if target == "/dev/null":
            return self._with(fd, _discard, io)
        path = normalize_path(target, self._folder)
        old = self._files.find(path) if redirect.operator == ">>" else None
        content = (old.content or b"") if old is not None else b""
        # An overwritten script stays executable.
        mode = {} if (known := self._files.find(path)) is None else {"mode": known.mode}
        self._files.write(path, content, **mode)
        output = _Output(self._files.num_free, content)
        self._written.append((path, output))
        return self._with(fd, output.write, io)

    def _duplicate(self, fd: int, target: str, io: CommandIO) -> CommandIO:
        """Apply `2>&1`, `<&3`, or `>&-`, which closes a stream."""
        known: dict[int, Write | Input] = {0: io.read, 1: io.out, 2: io.err, **io.others}
        if target == "-":
            return io._replace(read=NO_INPUT) if fd == 0 else self._with(fd, _discard, io)
        source = known.get(int(target) if target.isdecimal() else -1)
        if source is None:
            raise OSError(9, "Bad file descriptor", target)
        if isinstance(source, Input):
            return self._input(fd, source, io)
        return self._with(fd, source, io)

    def write(self) -> None:
        """Write the files of the redirections."""
        written, self._written = self._written, []
        for path, output in written:
            self._files.write(path, b"".join(output.chunks))

    def close(self) -> None:
        """Write the files of a failed command, as far as possible."""
        if self._written:
            with contextlib.suppress(OSError):  # the first error message is enough
                self.write()

    def _with(self, fd: int, write: Write, io: CommandIO) -> CommandIO:
        if fd == 1:
            return io._replace(out=write, drain=never_full)
        return io._replace(err=write) if fd == 2 else io._replace(others={**io.others, fd: write})

    def _input(self, fd: int, source: Input, io: CommandIO) -> CommandIO:
        return io._replace(**({"others": {**io.others, fd: source}} if fd else {"read": source}))

    def _reading(self, fd: int, content: bytes, io: CommandIO) -> CommandIO:
        """Make a descriptor read the content once, then the end of input."""
        source = Input(no_input)
        source.put_back(content)
        return self._input(fd, source, io)


class _Output:
    """Collects a command's output to a file, up to the phone's free space."""

    def __init__(self, num_free: int, start: bytes) -> None:
        self.chunks: list[bytes | memoryview] = [start]
        self._num_free = num_free

    def write(self, data: bytes | memoryview) -> None:
        self._num_free -= len(data)
        if self._num_free < 0:
            raise OSError(28, "No space left on device")
        self.chunks.append(data)
