"""The state of a shell: variables, parameters, options, functions and streams."""

import random
import time
from dataclasses import dataclass, field
from typing import Self

from virtual_phone.shell.command_streams import CommandIO
from virtual_phone.shell.field_splitting import DEFAULT_IFS, MAX_LENGTH
from virtual_phone.shell.syntax_tree import ShellCommand
from virtual_phone.system.process_table import Process
from virtual_phone.virtual_phone import VirtualPhone

_ENVIRONMENT = {
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "HOSTNAME": "virtual",
    "IFS": DEFAULT_IFS,
    "PATH": "/product/bin:/system/bin:/system/xbin:/vendor/bin",
    "PWD": "/",
    "SHELL": "/system/bin/sh",
    "TMPDIR": "/data/local/tmp",
    "USER": "shell",
}
BUILTINS = frozenset((
    ".", ":", "break", "cd", "command", "continue", "eval", "exec", "exit", "export",
    "local", "read", "readonly", "return", "set", "shift", "source", "trap", "type", "typeset",
    "unset", "wait",
))  # fmt: skip
"""Commands that are part of the shell rather than programs."""
_EXPORTED = frozenset(_ENVIRONMENT) - {"IFS"}
_MAX_VARIABLES_LENGTH = 32 * MAX_LENGTH
"""Maximum total length of a shell's variables."""


class ShellExit(Exception):
    """Raised by the `exit` command."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ShellFailure(ShellExit):
    """Raised by an error that ends a script but not an interactive shell."""


class FunctionReturn(Exception):
    """Raised by `return`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class LoopJump(Exception):
    """Raised by `break` and `continue`."""

    def __init__(self, levels: int, is_break: bool) -> None:
        super().__init__(levels)
        self.levels = levels
        self.is_break = is_break


@dataclass(slots=True, kw_only=True)
class ShellState:
    """State that a shell keeps between commands."""

    phone: VirtualPhone
    io: CommandIO
    environment: dict[str, str] = field(default_factory=_ENVIRONMENT.copy)
    exported: set[str] = field(default_factory=lambda: set(_EXPORTED))
    functions: dict[str, ShellCommand] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    """Option letters of `set`, and `pipefail`."""
    positional: list[str] = field(default_factory=list)
    name: str = "sh"
    """Value of `$0`."""
    read_only: set[str] = field(default_factory=set)
    """Variables protected by `readonly`."""
    exit_trap: str = ""
    """Script to run when the shell exits."""
    frames: list[dict[str, str | None]] = field(default_factory=list)
    """Values hidden by the local variables of each running function."""
    num_loops: int = 0
    """Current depth of nested loops."""
    is_condition: bool = False
    """Whether a condition is being evaluated, in which `set -e` ignores failures."""
    code: int = 0
    depth: int = 0
    """Number of shells that enclose this shell."""
    process: Process | None = None
    jobs: dict[int, Process] = field(default_factory=dict)
    """Background commands of this shell and of the shells that share its output, by process id."""
    own_jobs: list[int] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)

    def nested(self, io: CommandIO) -> Self:
        """Return the state of a nested shell, which cannot change the variables of this shell."""
        # dataclasses.replace would take three times as long.
        return type(self)(
            phone=self.phone,
            io=io,
            environment=dict(self.environment),
            exported=set(self.exported),
            functions=dict(self.functions),
            options=set(self.options),
            positional=self.positional,
            name=self.name,
            read_only=set(self.read_only),
            is_condition=self.is_condition,
            code=self.code,
            depth=self.depth + 1,
            process=self.process,
            jobs=self.jobs,
            started_s=self.started_s,
        )

    @property
    def pid(self) -> int:
        """Process id of the shell."""
        return 2000 if self.process is None else self.process.pid

    def complain(self, message: str) -> None:
        """Print an error message from the shell itself."""
        self.io.err(f"sh: {message}\n".encode("utf-8", "surrogateescape"))

    def assign(self, name: str, value: str) -> None:
        """Set a variable.

        Raises:
            ShellFailure: the variable is read-only.
            OSError: the value is too long.
        """
        if name in self.read_only:
            self.complain(f"read-only: {name}")
            raise ShellFailure(2)
        if len(value) > 1 << 16:
            total = sum(map(len, self.environment.values()))
            if len(value) > MAX_LENGTH or total > _MAX_VARIABLES_LENGTH:
                raise OSError(12, "Cannot allocate memory", name)
        self.environment[name] = value
        if "a" in self.options:
            self.exported.add(name)

    def parameter(self, name: str) -> str | None:
        """Return the value of a variable or a special parameter; None if it is not set."""
        if name == "RANDOM":
            return str(random.randrange(1 << 15))
        if name == "SECONDS":
            return str(int(time.monotonic() - self.started_s))
        value = self.environment.get(name)
        if value is None and name in ("COLUMNS", "LINES") and (terminal := self.io.terminal):
            return str(terminal.columns if name == "COLUMNS" else terminal.rows)
        if value is None and name in ("LINENO", "PPID"):
            self.complain(f"${name} is not supported")
            raise ShellFailure(1)
        if value is not None or name[0].isalpha() or name[0] == "_":
            return value
        if name.isdecimal():
            number = int(name[:9])
            if not number:
                return self.name
            return self.positional[number - 1] if number <= len(self.positional) else None
        if name == "!":
            return str(self.own_jobs[-1]) if self.own_jobs else None
        if name in ("@", "*"):
            return " ".join(self.positional) if self.positional else None
        if name == "-":
            return "".join(sorted(o for o in self.options if len(o) == 1))
        return str({"?": self.code, "$": self.pid, "#": len(self.positional)}[name])
