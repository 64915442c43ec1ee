"""Runs commands on a phone: in a new shell per call, or in a persistent shell."""

import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import FAILURES, DeviceTransport
from agentrl.devices.adb.shell_script import (
    BytesResult,
    Command,
    ShellScript,
    new_mark,
    text_results,
)
from agentrl.devices.device import CommandResult
from agentrl.errors import DeviceError, LeaseLost

_V2 = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT = range(4)
_LARGE = 4096
"""Packets of at least this many bytes are passed on as they arrive."""


class CommandShell(Protocol):
    """Runs commands on a phone in order."""

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[CommandResult]:
        """Return one result per command, up to a failing `Gate`; nonzero exits do not raise."""


class OneShotShell:
    """A new shell for each call, so that no command affects a later one."""

    def __init__(self, transport: DeviceTransport) -> None:
        self._transport = transport

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[CommandResult]:
        """See CommandShell.run."""
        if not commands:
            return []
        script = _script(self._transport, commands, prompted=False)
        try:
            with self._transport.open(f"shell,v2,raw:{script.text}", deadline) as link:
                _read(packets(link), script)
        except FAILURES as error:
            raise self._transport.failure(error, script.under_way, deadline.seconds) from error
        return text_results(_outputs(self._transport, script))


class PersistentShell:
    """A persistent shell, which saves opening a service and starting a shell for each call.

    Only for commands that do not change the shell's state (no `cd`, no `exit`). The shell is
    restarted if it has ended or a call timed out. A command is never sent twice. Calls made while
    another is running, and scripts other than one line of printable text, go through
    `OneShotShell`.
    """

    def __init__(self, transport: DeviceTransport, one_shot_shell: OneShotShell) -> None:
        self._transport = transport
        self._per_call = one_shot_shell
        self._lock = threading.Lock()
        self._link: AdbSocket | None = None
        self._packets: Iterator[tuple[int, bytes]] = iter(())
        self._mark = new_mark()
        """Marker shared by all scripts, so that equal commands give equal scripts, which are parsed
        only once."""

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[CommandResult]:
        """See CommandShell.run."""
        if not commands:
            return []
        outputs = self.outputs(commands, deadline)
        if outputs is None:
            return self._per_call.run(commands, deadline)
        return text_results(outputs)

    def outputs(self, commands: Sequence[Command], deadline: Deadline) -> list[BytesResult] | None:
        """Run commands and return their raw outputs; None if they need a separate shell."""
        script = _script(self._transport, commands, prompted=True, mark=self._mark)
        # A script must be one line, and a second call must not wait for the first.
        if not script.text.isprintable() or not self._lock.acquire(blocking=False):
            return None
        try:
            self._talk(script, deadline)
            if script.lost:  # the shell has exited
                self._drop()
        finally:
            self._lock.release()
        return _outputs(self._transport, script)

    def close(self) -> None:
        """End the shell. A running call fails; the next call starts a new shell."""
        link = self._link
        if link is not None:
            link.close()

    def _talk(self, script: ShellScript, deadline: Deadline) -> None:
        """Send a script and read until its end."""
        data = f"{script.text}\n".encode()
        try:
            # Two attempts suffice, because the second uses a shell that has just been opened.
            for _ in range(2):
                link = self._ready(deadline)
                link.send(_V2.pack(_STDIN, len(data)) + data)
                if _read(self._packets, script):
                    return
                # The shell had ended before it read any of the script, so send it to a new one.
                self._drop()
            raise ConnectionError(script.why_incomplete())
        except FAILURES as error:
            self._drop()
            raise self._transport.failure(error, script.under_way, deadline.seconds) from error
        except BaseException:  # the script may still run, and print before the next one
            self._drop()
            raise

    def _ready(self, deadline: Deadline) -> AdbSocket:
        """Return the shell's connection, reopened if it has ended."""
        if self._link is None or self._link.has_ended():
            self._drop()
            self._link = self._transport.open("shell,v2,raw:", deadline)
            self._packets = packets(self._link)
        self._link.deadline = deadline
        return self._link

    def _drop(self) -> None:
        link, self._link, self._packets = self._link, None, iter(())
        self._mark = new_mark()
        if link is not None:
            link.close()


def packets(link: AdbSocket) -> Iterator[tuple[int, bytes]]:
    """Yield the packets of the shell v2 protocol as id and data.

    Packets that arrived together and have the same id are joined; large packets come in pieces.
    """
    pending, large, num_left = b"", _STDIN, 0
    while chunk := link.receive():
        # Pass on the rest of a large packet without copying what came before.
        if num_left:
            yield large, chunk[:num_left]
            chunk, num_left = chunk[num_left:], max(0, num_left - len(chunk))
            if num_left:
                continue
        data = pending + chunk
        at, last, parts = 0, _STDIN, list[bytes]()
        while len(data) - at >= _V2.size:
            id, length = _V2.unpack_from(data, at)
            end = at + _V2.size + length
            if len(data) < end and length < _LARGE:  # small packets are joined once complete
                break
            if id != last and parts:
                yield last, b"".join(parts)
                parts = []
            parts.append(data[at + _V2.size : end])
            at, last = end, id
        pending = data[at:]
        large, num_left = last, max(0, at - len(data))
        if parts:
            yield last, b"".join(parts)


def _read(arriving: Iterator[tuple[int, bytes]], script: ShellScript) -> bool:
    """Read a script's output to its end; return False if the shell exited before it began.

    Raises:
        ConnectionError: the shell or the connection ended early; part of the script may have run.
    """
    for id, data in arriving:
        if id in (_STDOUT, _STDERR) and script.add(data):
            return True
        if id == _EXIT and not script.begun:
            return False
        if id == _EXIT:
            break
    raise ConnectionError(script.why_incomplete())


def _script(
    transport: DeviceTransport,
    commands: Sequence[Command],
    *,
    prompted: bool,
    mark: str | None = None,
) -> ShellScript:
    try:
        return ShellScript(commands, prompted=prompted, token=transport.token, mark=mark)
    except DeviceError as error:
        raise DeviceError(f"{transport.serial}: {error}") from error


def _outputs(transport: DeviceTransport, script: ShellScript) -> list[BytesResult]:
    try:
        return script.outputs()
    except LeaseLost as error:
        raise LeaseLost(f"{transport.serial}: lost lease {transport.token}; {error}") from None
