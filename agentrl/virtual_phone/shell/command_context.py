"""What a command gets: its arguments, its streams, its shell and its phone."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.virtual_phone.shell.redirects import CommandIO, Read
from agentrl.virtual_phone.system.file_system import normalize_path

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import VirtualPhone
    from agentrl.virtual_phone.shell.interpreter import ShellInterpreter

_MOST_KEPT = 64 << 20
"""Largest standard input, in bytes, that a command may hold in memory."""


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """One invocation of a command: arguments, streams, and the shell that runs it."""

    shell: "ShellInterpreter"
    name: str
    arguments: list[str]
    io: CommandIO

    @property
    def phone(self) -> "VirtualPhone":
        """The phone that the command runs on."""
        return self.shell.phone

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its shell."""
        return self.shell.environment

    def out(self, data: bytes | memoryview) -> None:
        """Write to standard output."""
        self.io.out(data)

    def say(self, text: str) -> int:
        """Write a line to standard output; returns the exit code 0."""
        self.io.out(f"{text}\n".encode("utf-8", "surrogateescape"))
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        """Write a line to standard error; returns the exit code."""
        self.io.err(f"{text}\n".encode("utf-8", "surrogateescape"))
        return code

    def path(self, path: str) -> str:
        """An absolute path, resolved against the working directory."""
        return normalize_path(path, self.environment["PWD"])

    async def read_all(self) -> bytes:
        """Read standard input to its end.

        Raises:
            OSError: it is too long.
        """
        return await read_to_end(self.io.read)


CommandFunction = Callable[[CommandContext], "int | Awaitable[int]"]
"""A command; returns its exit code."""


async def read_to_end(read: Read) -> bytes:
    """Read to the end.

    Raises:
        OSError: it is too long.
    """
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > _MOST_KEPT:
            raise OSError(12, "Cannot allocate memory")
    return b"".join(chunks)
