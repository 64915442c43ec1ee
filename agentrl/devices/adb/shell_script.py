"""Commands for a phone's shell: the one place that quotes."""

import re
import secrets
import shlex
from collections.abc import Sequence

from agentrl.devices.device import Result
from agentrl.errors import DeviceError, LeaseLost

Command = Sequence[str]


class Snippet(str):
    """A command that is a piece of shell of our own, such as a pipeline.

    Whatever comes from elsewhere must have been quoted: it is sent as it is.
    """

    __slots__ = ()


class Gate(Snippet):
    """A command that the rest of its script depends on: where it fails, no other comes after it."""

    __slots__ = ()


HOLDER = "/data/local/tmp/agentrl.lease"
"""A file on the phone: under which token it is lent."""
_CODE = re.compile(rb"(\d+|lost|no)\r?\n")
_LONGEST_END = 64
"""Bytes of a mark and its code, at most."""


def spelled(command: Command) -> str:
    """A command as a POSIX shell reads it, every argument in quotes where it needs them.

    A `Snippet` is taken as it is.

    Raises:
        DeviceError: an argument that no shell can be given.
    """
    text = f"{{ {command}; }}" if isinstance(command, Snippet) else shlex.join(command)
    if "\0" in text:
        raise DeviceError(f"a NUL cannot be sent to a shell: {text[:200]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DeviceError(f"half a character cannot be sent to a shell: {text[:200]!r}") from error
    return text


def holding(token: int) -> Command:
    """The command that lends the phone under a token, and to nobody else from then on."""
    return ("sh", "-c", f"echo {token} >{HOLDER}")


def _fence(token: int, mark: str) -> str:
    """Ends the script here where the phone is not lent under that token.

    Of the shell's own words alone: a process more would cost a phone milliseconds.
    """
    return f'read held <{HOLDER} && test "$held" = {token} || {{ echo {mark}lost; exit 77; }}'


class Script:
    """Some commands, one after the other, whose outputs can be told apart.

    Each is followed by a mark and its exit code. The mark is not to be guessed, so that no output
    can pass for the end of a command. What comes before the first mark, such as the prompt of a
    shell, belongs to no command. No command reads what is typed into the shell after it.
    """

    def __init__(
        self, commands: Sequence[Command], *, prompted: bool = True, token: int | None = None
    ) -> None:
        """A script of these commands.

        Args:
            commands: one after the other.
            prompted: whether the shell may have something to say before it reads the script.
            token: that the phone must be lent under, or nothing of it is done; None does not ask.

        Raises:
            DeviceError: an argument that no shell can be given.
        """
        mark = f"=={secrets.token_hex(8)}=="
        begin = [f"echo {mark}0"] if prompted else []
        begin += [] if token is None else [_fence(token, mark)]
        text = ""
        for command in reversed(commands):
            run = f"{spelled(command)} </dev/null 2>&1"
            if isinstance(command, Gate):
                text = f"{run} && {{ echo {mark}0{'; ' * bool(text)}{text}; }} || echo {mark}no"
            else:
                text = f"{run}; echo {mark}$?{'; ' * bool(text)}{text}"
        self.text = "; ".join([*begin, *([text] if text else [])])
        self._mark = mark.encode()
        self._count = len(commands)
        self._output = bytearray()
        self._results: list[Result] = []
        self.lost = False
        """Whether the phone is not lent under the token; the shell has ended then."""
        self._stopped = False
        self.begun = not prompted
        """Whether the shell has read it, as far as it is known."""

    def add(self, output: bytes) -> bool:
        """Take some of what the shell wrote; True when there is nothing more to come."""
        start = max(0, len(self._output) - _LONGEST_END)  # what lies before has been looked at
        self._output += output
        while (at := self._output.find(self._mark, start)) >= 0:
            code = _CODE.match(self._output, at + len(self._mark))
            if code is None:  # the rest of the line is still to come
                break
            if code[1] == b"lost":
                self.lost = True
                return True
            if self.begun:
                text = self._output[:at].decode("utf-8", "replace")
                self._stopped = code[1] == b"no"
                self._results.append(Result(output=text, code=1 if self._stopped else int(code[1])))
            self.begun = True
            del self._output[: code.end()]
            start = 0
        return self._stopped or len(self._results) >= self._count

    def results(self) -> list[Result]:
        """One result per command; that of a gate that has failed is the last.

        Raises:
            LeaseLost: the phone is lent to somebody else, and none of them has run.
            DeviceError: the shell has ended before the last of them.
        """
        if self.lost:
            raise LeaseLost(
                "the phone is lent to somebody else, or to nobody; is another job on it?"
            )
        if not self._stopped and len(self._results) < self._count:
            tail = bytes(self._output[-200:]).decode("utf-8", "replace")
            raise DeviceError(
                f"the shell ended after {len(self._results)} of {self._count} commands: {tail!r}"
            )
        return self._results
