"""One call of a command: what it is given, and where its output goes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.virtual_phone.shell.redirects import IO, Read
from agentrl.virtual_phone.system.file_system import normal

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import Phone
    from agentrl.virtual_phone.shell.interpreter import Shell

_MOST_KEPT = 64 << 20
"""Bytes that a command keeps of its input."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a command: what it is given and where its output goes."""

    shell: "Shell"
    name: str
    arguments: list[str]
    io: IO

    @property
    def phone(self) -> "Phone":
        """The phone that it runs on."""
        return self.shell.phone

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its shell."""
        return self.shell.environment

    def out(self, data: bytes | memoryview) -> None:
        """Write to standard output."""
        self.io.out(data)

    def say(self, text: str) -> int:
        """Write a line and succeed."""
        self.io.out(f"{text}\n".encode("utf-8", "surrogateescape"))
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        """Complain and fail."""
        self.io.err(f"{text}\n".encode("utf-8", "surrogateescape"))
        return code

    def path(self, path: str) -> str:
        """An absolute path, from the folder in which the shell is."""
        return normal(path, self.environment["PWD"])

    async def read_all(self) -> bytes:
        """Standard input until its end.

        Raises:
            OSError: it does not end.
        """
        return await all_of(self.io.read)


Run = Callable[[Call], "int | Awaitable[int]"]
"""A command: gives its exit code."""


async def all_of(read: Read) -> bytes:
    """What is read until its end.

    Raises:
        OSError: it does not end.
    """
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > _MOST_KEPT:
            raise OSError(12, "Cannot allocate memory")
    return b"".join(chunks)
