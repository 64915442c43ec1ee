"""Redirections of a command's streams."""

import contextlib

from virtual_phone.shell.command_streams import (
    NO_INPUT,
    CommandIO,
    Input,
    Write,
    never_full,
    no_input,
)
from virtual_phone.shell.syntax_tree import Redirect
from virtual_phone.system.file_system import FileSystem, normalize_path


def _discard(data: bytes | memoryview) -> None:
    """Discard output, as `/dev/null` does."""


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
