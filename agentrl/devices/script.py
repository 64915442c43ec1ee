"""Commands for a phone's shell: the one place that quotes."""

import re
import secrets
import shlex
from collections.abc import Sequence

from agentrl.devices.protocol import Result
from agentrl.errors import DeviceError

Command = Sequence[str]

_CODE = re.compile(rb"(\d+)\r?\n")


def spelled(command: Command) -> str:
    """A command as a POSIX shell reads it, every argument in quotes where it needs them.

    Raises:
        DeviceError: an argument that no shell can be given.
    """
    text = shlex.join(command)
    if "\0" in text:
        raise DeviceError(f"a NUL cannot be sent to a shell: {text[:200]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DeviceError(f"half a character cannot be sent to a shell: {text[:200]!r}") from error
    return text


class Script:
    """Some commands, one after the other, whose outputs can be told apart.

    Each is followed by a mark and its exit code. The mark is not to be guessed, so that no output
    can pass for the end of a command. What comes before the first mark, such as the prompt of a
    shell, belongs to no command. No command reads what is typed into the shell after it.
    """

    def __init__(self, commands: Sequence[Command], *, prompted: bool = True) -> None:
        """A script of these commands.

        Args:
            commands: one after the other.
            prompted: whether the shell may have something to say before it reads the script.

        Raises:
            DeviceError: an argument that no shell can be given.
        """
        mark = f"=={secrets.token_hex(8)}=="
        begin = [f"echo {mark}0"] if prompted else []
        ends = [f"{spelled(command)} </dev/null 2>&1; echo {mark}$?" for command in commands]
        self.text = "; ".join([*begin, *ends])
        self._mark = mark.encode()
        self._count = len(commands)
        self._output = bytearray()
        self._results: list[Result] = []
        self.begun = not prompted
        """Whether the shell has read it, as far as it is known."""

    def add(self, output: bytes) -> bool:
        """Take some of what the shell wrote; True when the last command has ended."""
        self._output += output
        while (at := self._output.find(self._mark)) >= 0:
            code = _CODE.match(self._output, at + len(self._mark))
            if code is None:  # the rest of the line is still to come
                break
            if self.begun:
                text = self._output[:at].decode("utf-8", "replace")
                self._results.append(Result(output=text, code=int(code[1])))
            self.begun = True
            del self._output[: code.end()]
        return len(self._results) >= self._count

    def results(self) -> list[Result]:
        """One result per command.

        Raises:
            DeviceError: the shell has ended before the last of them.
        """
        if len(self._results) < self._count:
            tail = bytes(self._output[-200:]).decode("utf-8", "replace")
            raise DeviceError(
                f"the shell ended after {len(self._results)} of {self._count} commands: {tail!r}"
            )
        return self._results
