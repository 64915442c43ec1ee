"""Builds scripts for a phone's shell and parses their output; the only place that quotes."""

import re
import secrets
import shlex
from collections.abc import Sequence

from agentrl.devices.device import CommandResult
from agentrl.errors import DeviceError, LeaseLost

Command = Sequence[str]
BytesResult = tuple[bytes, int]
"""Output of a command, which may be no text, and its exit code."""


class Snippet(str):
    """A command that is shell code of our own, such as a pipeline.

    It is sent as is: anything from elsewhere in it must already be quoted.
    """

    __slots__ = ()


class Gate(Snippet):
    """A command that the rest of its script depends on: if it fails, the script ends."""

    __slots__ = ()


LEASE_FILE = "/data/local/tmp/agentrl.lease"
"""A file on the phone with the token of its current lease."""
_CODE = re.compile(rb"(\d+|lost|no)\r?\n")
_LONGEST_END = 64
"""Upper bound of the bytes of a marker and its exit code."""


def quote_command(command: Command) -> str:
    """A command as text for a POSIX shell, with arguments quoted as needed.

    A `Snippet` is not quoted.
    """
    text = f"{{ {command}; }}" if isinstance(command, Snippet) else shlex.join(command)
    if "\0" in text:
        raise DeviceError(f"a NUL cannot be sent to a shell: {text[:200]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DeviceError(f"a lone surrogate cannot be sent to a shell: {text[:200]!r}") from error
    return text


def claim_command(token: int) -> Command:
    """The command that makes a token the only one under which the phone accepts commands."""
    return ("sh", "-c", f"echo {token} >{LEASE_FILE}")


def text_results(results: Sequence[BytesResult]) -> list[CommandResult]:
    """The results, with their output decoded as text."""
    return [
        CommandResult(output=data.decode("utf-8", "replace"), code=code) for data, code in results
    ]


def new_mark() -> str:
    """A random marker. Scripts of one shell may share it, as they run one after the other."""
    return f"=={secrets.token_hex(8)}=="


class ShellScript:
    """Several commands run in order, whose outputs can be separated.

    Each is followed by a random marker and its exit code, so no output can imitate the end of a
    command. Output before the first marker, such as a shell prompt, belongs to no command. Commands
    do not read the shell's standard input.
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
            commands: to run in order.
            prompted: whether the shell may print something before it reads the script.
            token: lease under which the phone must be, or nothing is run; None does not check.
            mark: see `new_mark`; None takes a new one.
        """
        # Without the first mark, a prompt would be taken for output of the first command.
        mark = mark or new_mark()
        begin = [f"echo {mark}0"] if prompted else []
        if token is not None:
            # End the script unless the phone is leased under this token. Only by shell builtins:
            # starting a process costs milliseconds on a phone.
            held = f'read held <{LEASE_FILE} && test "$held" = {token}'
            begin.append(f"{held} || {{ echo {mark}lost; exit 77; }}")
        text = ""
        # Built from the end, as each gate encloses all that depends on it.
        for command in reversed(commands):
            run = quote_command(command)
            if isinstance(command, Gate):
                text = f"{run} && {{ echo {mark}0{'; ' * bool(text)}{text}; }} || echo {mark}no"
            else:
                text = f"{run}; echo {mark}$?{'; ' * bool(text)}{text}"
        self.text = "; ".join([*begin, *([f"{{ {text}; }} </dev/null 2>&1"] if text else [])])
        self._mark = mark.encode()
        self._count = len(commands)
        self._output = bytearray()
        self._results: list[BytesResult] = []
        self.lost = False
        """Whether the phone is not leased under the token; the shell has then ended."""
        self._stopped = False
        self.begun = not prompted
        """Whether the shell is known to have read the script."""

    def add(self, output: bytes) -> bool:
        """Consume output of the shell; True when the script is complete."""
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
        return self._stopped or len(self._results) >= self._count

    def outputs(self) -> list[BytesResult]:
        """Output and exit code of each command, up to a gate that failed."""
        if self.lost:
            raise LeaseLost(
                "the phone is leased to another holder, or to none; is another job using it?"
            )
        if not self._stopped and len(self._results) < self._count:
            tail = bytes(self._output[-200:]).decode("utf-8", "replace")
            raise DeviceError(
                f"the shell ended after {len(self._results)} of {self._count} commands: {tail!r}"
            )
        return self._results
