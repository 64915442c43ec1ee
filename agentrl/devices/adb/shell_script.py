"""Builds scripts for a phone's shell and parses their output; all quoting happens here."""

import re
import secrets
import shlex
from collections.abc import Sequence

from agentrl.devices.device import CommandResult
from agentrl.errors import DeviceError, LeaseLost

Command = Sequence[str]
BytesResult = tuple[bytes, int]
"""Output of a command, not necessarily text, and its exit code."""


class Snippet(str):
    """A command given as shell code, such as a pipeline.

    It is sent as is, so any outside values in it must already be quoted.
    """

    __slots__ = ()


class Gate(Snippet):
    """A command that the rest of its script depends on: if it fails, the script ends."""

    __slots__ = ()


LEASE_FILE = "/data/local/tmp/agentrl.lease"
"""File on the phone that holds the token of its current lease."""
_CODE = re.compile(rb"(\d+|lost|no)\r?\n")
_LONGEST_END = 64
"""Upper bound on the size in bytes of a marker and its exit code."""


def quote_command(command: Command) -> str:
    """Format a command for a POSIX shell, quoting arguments as needed.

    A `Snippet` is not quoted.
    """
    text = f"{{ {command}; }}" if isinstance(command, Snippet) else shlex.join(command)
    if "\0" in text:
        raise DeviceError(f"a NUL character cannot be sent to a shell: {text[:200]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DeviceError(f"a lone surrogate cannot be sent to a shell: {text[:200]!r}") from error
    return text


def claim_command(token: int) -> Command:
    """Return the command that makes the phone accept only commands sent under this token."""
    return ("sh", "-c", f"echo {token} >{LEASE_FILE}")


def text_results(results: Sequence[BytesResult]) -> list[CommandResult]:
    """Decode the output of the results as text."""
    return [
        CommandResult(output=data.decode("utf-8", "replace"), code=code) for data, code in results
    ]


def new_mark() -> str:
    """Return a random marker. Scripts of one shell may share it because they run in sequence."""
    return f"=={secrets.token_hex(8)}=="


class ShellScript:
    """Several commands run in order, whose outputs can be separated.

    Each command is followed by a random marker and its exit code, so no output can imitate the end
    of a command. Output before the first marker, such as a shell prompt, belongs to no command.
    Commands do not read the shell's standard input.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        *,
        prompted: bool = True,
        token: int | None = None,
        mark: str | None = None,
    ) -> None:
        """Build the script.

        Args:
            commands: commands to run in order.
            prompted: whether the shell may print something before it reads the script.
            token: run nothing unless the phone is leased under this token; None skips the check.
            mark: marker from `new_mark`; None generates one.
        """
        # Without the first mark, a prompt would be mistaken for output of the first command.
        mark = mark or new_mark()
        begin = [f"echo {mark}0"] if prompted else []
        if token is not None:
            # End the script unless the phone is leased under this token. This uses only shell
            # builtins because starting a process costs milliseconds on a phone.
            held = f'read held <{LEASE_FILE} && test "$held" = {token}'
            begin.append(f"{held} || {{ echo {mark}lost; exit 77; }}")
        text = ""
        # Built from the end, because each gate encloses the commands that depend on it.
        for command in reversed(commands):
            run = quote_command(command)
            if isinstance(command, Gate):
                text = f"{run} && {{ echo {mark}0{'; ' * bool(text)}{text}; }} || echo {mark}no"
            else:
                text = f"{run}; echo {mark}$?{'; ' * bool(text)}{text}"
        self.text = "; ".join([*begin, *([f"{{ {text}; }} </dev/null 2>&1"] if text else [])])
        self._mark = mark.encode()
        self._commands = commands
        self._output = bytearray()
        self._results: list[BytesResult] = []
        self.lost = False
        """Whether the lease was lost, in which case the shell has ended."""
        self._stopped = False
        self.begun = not prompted
        """Whether the shell is known to have read the script."""

    def add(self, output: bytes) -> bool:
        """Consume output of the shell; return True when the script is complete."""
        start = max(0, len(self._output) - _LONGEST_END)  # everything before was searched already
        self._output += output
        # Only the shell prints the random mark, so no output of a command can end it early.
        while (at := self._output.find(self._mark, start)) >= 0:
            code = _CODE.match(self._output, at + len(self._mark))
            if code is None:  # the line is not complete yet
                break
            if code[1] == b"lost":
                self.lost = True
                return True
            if self.begun:  # else it was the first mark, after a prompt
                self._stopped = code[1] == b"no"
                with memoryview(self._output) as view:
                    output = bytes(view[:at])
                self._results.append((output, 1 if self._stopped else int(code[1])))
            self.begun = True
            del self._output[: code.end()]
            start = 0
        return self._stopped or len(self._results) >= len(self._commands)

    @property
    def under_way(self) -> str:
        """The first command without a result: the one at which a script that failed did."""
        return quote_command(self._commands[min(len(self._results), len(self._commands) - 1)])

    def why_incomplete(self) -> str:
        """Return the message for a shell that ended before the script was complete."""
        tail = bytes(self._output[-200:]).decode("utf-8", "replace")
        done, count = len(self._results), len(self._commands)
        return f"the shell ended after {done} of {count} commands: {tail!r}"

    def outputs(self) -> list[BytesResult]:
        """Return each command's output and exit code once the script is complete.

        After a gate that failed, there are no results.
        """
        if self.lost:
            raise LeaseLost(
                "the phone now has a different holder or none. Is another job using it?"
            )
        return self._results
