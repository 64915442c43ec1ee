"""What a command gets: its arguments, its streams, and the shell that runs it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from virtual_phone.shell.command_streams import CommandIO, Read
from virtual_phone.shell.shell_state import ShellState
from virtual_phone.shell.word_expander import WordExpander
from virtual_phone.system.file_system import normalize_path
from virtual_phone.system.process_table import Process
from virtual_phone.virtual_phone import VirtualPhone

_MAX_IN_MEMORY = 64 << 20
"""Maximum input in bytes that a command may hold in memory."""


class UsageError(ValueError):
    """Raised by a command for invalid options; the message is printed after the command name."""


class CallingShell(Protocol):
    """The shell that runs a command."""

    state: ShellState
    words: WordExpander

    def inner(self, io: CommandIO) -> "CallingShell":
        """Create a nested shell, which cannot change the variables of this shell."""

    async def execute(self, words: Sequence[str], io: CommandIO) -> int:
        """Run a command, given its name and arguments."""

    async def run_here(self, script: str) -> int:
        """Run a script as part of the enclosing script, which `exit` and `break` also affect."""

    async def run_program(
        self,
        ctx: "CommandContext",
        script: str,
        words: Sequence[str],
        options: frozenset[str] | set[str] = frozenset(),
    ) -> int:
        """Run a script as a separate program, which sees only exported variables.

        `words` are `$0` and the positional parameters; `options` are letters of `set`.
        """


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """An invocation of a command: arguments, streams, and the shell that runs it."""

    shell: CallingShell
    name: str
    arguments: list[str]
    io: CommandIO
    process: Process | None = None
    """The command's entry in the phone's process table while it waits."""

    @property
    def phone(self) -> VirtualPhone:
        """Phone the command runs on."""
        return self.shell.state.phone

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the command's shell."""
        return self.shell.state.environment

    def out(self, data: bytes | memoryview) -> None:
        """Write to standard output."""
        self.io.out(data)

    def print(self, text: str) -> int:
        """Write a line to standard output; return the exit code 0."""
        self.io.out(f"{text}\n".encode("utf-8", "surrogateescape"))
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        """Write a line to standard error; return the exit code."""
        self.io.err(f"{text}\n".encode("utf-8", "surrogateescape"))
        return code

    def path(self, path: str) -> str:
        """Resolve a path against the working directory."""
        return normalize_path(path, self.environment["PWD"])

    async def read_all(self) -> bytes:
        """Read standard input to its end."""
        return await read_to_end(self.io.read)


CommandFunction = Callable[[CommandContext], "int | Awaitable[int]"]
"""A function that runs a command and returns its exit code."""


async def read_to_end(read: Read) -> bytes:
    """Read until the end of input."""
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > _MAX_IN_MEMORY:
            raise OSError(12, "Cannot allocate memory")
    return b"".join(chunks)
