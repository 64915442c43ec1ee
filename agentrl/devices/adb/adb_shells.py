"""Two ways to have a phone run commands: in a shell for each call, and in one that stays."""

import struct
import threading
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Protocol

from agentrl.devices.adb.adb_socket import Deadline, Link
from agentrl.devices.adb.device_transport import FAILURES, Line
from agentrl.devices.adb.shell_script import Command, Script, spelled
from agentrl.devices.device import Result
from agentrl.errors import DeviceError, LeaseLost

_V2 = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT = range(4)


class Shell(Protocol):
    """Runs commands on a phone, one after the other."""

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[Result]:
        """One result per command, up to a `Gate` that fails; an exit code is no error here.

        Raises:
            DeviceError: the phone failed, or not all of them ran.
        """

    def close(self) -> None:
        """End what is kept; the next call starts it again."""


class ShellPerCall:
    """A shell of its own for each call: what a command changes in it goes with it."""

    def __init__(self, line: Line) -> None:
        """Nothing is started before the first call."""
        self._line = line

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[Result]:
        """See Shell.run."""
        if not commands:
            return []
        script = _script(self._line, commands, prompted=False)
        service = f"shell,v2,raw:{script.text}"
        with self._line.opened(service, deadline, _named(commands)) as link:
            if _read(packets(link), script) is _End.SCRIPT:
                return _results(self._line, script)
        raise _ended(self._line, script)

    def close(self) -> None:
        """Nothing is kept."""


class KeptShell:
    """One shell that stays: saves opening a service and starting a shell for each call.

    Only for commands that leave the shell as it is (no `cd`, no `exit`). It is started anew when
    it has ended or a call was not answered in time. A command is never sent twice. What arrives
    while a call is running, and what is more than one line of plain text, goes through
    `ShellPerCall`.
    """

    def __init__(self, line: Line, per_call: ShellPerCall) -> None:
        """Nothing is started before the first call."""
        self._line = line
        self._per_call = per_call
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._packets: Iterator[tuple[int, bytes]] = iter(())

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[Result]:
        """See Shell.run."""
        if not commands:
            return []
        script = _script(self._line, commands, prompted=True)
        if not script.text.isprintable() or not self._lock.acquire(blocking=False):
            return self._per_call.run(commands, deadline)
        try:
            if self._talk(script, commands, deadline):
                if script.lost:
                    self._drop()
                return _results(self._line, script)
            self._drop()
        finally:
            self._lock.release()
        raise _ended(self._line, script)

    def close(self) -> None:
        """See Shell.close; a call that runs ends with an error."""
        link = self._link
        if link is not None:
            link.close()

    def _talk(self, script: Script, commands: Sequence[Command], deadline: Deadline) -> bool:
        """Send a script and read until its end; False where the shell has ended before."""
        data = f"{script.text}\n".encode()
        try:
            for _ in range(2):
                link = self._ready(deadline)
                link.send(_V2.pack(_STDIN, len(data)) + data)
                end = _read(self._packets, script)
                if end is not _End.EXIT or script.begun:
                    return end is _End.SCRIPT
                # The shell had ended before it read a word of it: a new one gets it.
                self._drop()
        except FAILURES as error:
            self._drop()
            raise self._line.failure(error, _named(commands), deadline.seconds) from error
        except BaseException:
            self._drop()
            raise
        return False

    def _ready(self, deadline: Deadline) -> Link:
        """The shell's connection, which is opened where there is none any more."""
        if self._link is None or self._link.has_ended():
            self._drop()
            self._link = self._line.open("shell,v2,raw:", deadline)
            self._packets = packets(self._link)
        self._link.deadline = deadline
        return self._link

    def _drop(self) -> None:
        link, self._link, self._packets = self._link, None, iter(())
        if link is not None:
            link.close()


def packets(link: Link) -> Iterator[tuple[int, bytes]]:
    """What shell v2 sends, by id; read as it comes, because a read costs more than a copy."""
    buffer = bytearray()
    while chunk := link.receive():
        buffer += chunk
        while len(buffer) >= _V2.size:
            id, length = _V2.unpack_from(buffer)
            end = _V2.size + length
            if len(buffer) < end:
                break
            data = bytes(buffer[_V2.size : end])
            del buffer[:end]
            yield id, data


class _End(Enum):
    """What ended first."""

    SCRIPT = auto()
    EXIT = auto()
    """The shell, which said so: what it has not begun by then it never will."""
    LINK = auto()
    """The connection: what has become of the script is not known."""


def _read(arriving: Iterator[tuple[int, bytes]], script: Script) -> _End:
    for id, data in arriving:
        if id in (_STDOUT, _STDERR) and script.add(data):
            return _End.SCRIPT
        if id == _EXIT:
            return _End.EXIT
    return _End.LINK


def _script(line: Line, commands: Sequence[Command], *, prompted: bool) -> Script:
    try:
        return Script(commands, prompted=prompted, token=line.token)
    except DeviceError as error:
        raise DeviceError(f"{line.serial}: {error}") from error


def _results(line: Line, script: Script) -> list[Result]:
    try:
        return script.results()
    except LeaseLost as error:
        raise LeaseLost(f"{line.serial}: lease {line.token}: {error}") from None


def _named(commands: Sequence[Command]) -> str:
    return "; ".join(spelled(command) for command in commands)


def _ended(line: Line, script: Script) -> DeviceError:
    """What to say where a shell has ended before its script."""
    try:
        line.check_online()
        script.results()
    except DeviceError as error:
        named = str(error).startswith(line.serial)
        return error if named else DeviceError(f"{line.serial}: {error}")
    return DeviceError(f"{line.serial}: the shell has ended")
