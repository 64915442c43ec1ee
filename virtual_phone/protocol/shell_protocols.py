"""The two protocols that clients use to talk to a shell."""

import asyncio
import contextlib
import re
import struct
from collections.abc import Sequence

from virtual_phone.commands import COMMANDS
from virtual_phone.protocol.adb_stream import Stream
from virtual_phone.protocol.terminal import INTERRUPTED, TerminalDevice, converse
from virtual_phone.shell.command_streams import CommandIO, Input, Terminal
from virtual_phone.shell.interpreter import ShellInterpreter
from virtual_phone.shell.shell_state import ShellState
from virtual_phone.virtual_phone import VirtualPhone

_V2 = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN, _WINDOW_SIZE = range(6)
_SIZE = re.compile(rb"(\d{1,4})x(\d{1,4}),")
"""Rows and columns of the client's window; the size in pixels follows."""
_GATHER_S = 0.002
"""Seconds of script output combined into one packet."""
_SMALL = 4096
"""Size below which copying bytes is cheaper than sending them as a separate piece."""


async def serve_v1(phone: VirtualPhone, stream: Stream, script: str, *, is_raw: bool) -> None:
    """Serve with raw output: stdout and stderr are mixed, and the exit code is not sent."""

    def write(data: bytes | memoryview) -> None:
        if stream.closed:
            raise BrokenPipeError(32, "Broken pipe")
        stream.write(data)

    io = CommandIO(out=write, err=write, read=Input(stream.read), drain=stream.drain)
    with contextlib.suppress(BrokenPipeError):
        await _run(phone, io, script, None if script or is_raw else Terminal())


async def serve_v2(
    phone: VirtualPhone, stream: Stream, script: str, options: Sequence[str]
) -> None:
    """Serve with output, errors and the exit code as packets: u8 id, u32 length, bytes."""
    stream.gather_s = _GATHER_S

    def packet(id: int, data: bytes | memoryview) -> None:
        header = _V2.pack(id, len(data))
        for piece in (header + data,) if len(data) < _SMALL else (header, data):
            stream.write(piece)

    # adb requests a terminal with `pty`; other clients expect one when the script is empty.
    has_terminal = "pty" in options or ("raw" not in options and not script)
    terminal = Terminal() if has_terminal else None
    io = CommandIO(
        out=lambda data: packet(_STDOUT, data),
        err=lambda data: packet(_STDERR, data),
        read=Input(_StandardInput(stream, terminal).read),
        drain=stream.drain,
    )
    code = await _run(phone, io, script, terminal)
    packet(_EXIT, bytes([code & 0xFF]))


async def _run(phone: VirtualPhone, io: CommandIO, script: str, terminal: Terminal | None) -> int:
    """Run a script, or typed commands if it is empty; return the exit code."""
    if terminal is None:
        shell = ShellInterpreter(ShellState(phone=phone, io=io), COMMANDS)
        return await (shell.run(script) if script else shell.live(converse(shell, None)))
    device = TerminalDevice(io.read, io.out, terminal)
    io = CommandIO(out=device.write, err=device.write, read=Input(device.read), drain=io.drain,
                   terminal=terminal)  # fmt: skip
    shell = ShellInterpreter(ShellState(phone=phone, io=io), COMMANDS)
    keyboard = asyncio.create_task(device.listen())
    try:
        if not script:
            return await shell.live(converse(shell, device))
        was_interrupted = await device.run(shell.run(script))
        return INTERRUPTED if was_interrupted else shell.state.code
    finally:
        keyboard.cancel()


class _StandardInput:
    """Decodes standard input from shell v2 packets, whatever their claimed length."""

    def __init__(self, stream: Stream, terminal: Terminal | None) -> None:
        self._stream = stream
        self._terminal = terminal
        self._buffer = bytearray()
        self._id = _STDIN
        self._num_left = 0
        self._ended = False

    async def read(self) -> bytes:
        """Return the next chunk; empty at the end."""
        while not self._ended:
            if not self._num_left and len(self._buffer) >= _V2.size:
                self._id, self._num_left = _V2.unpack_from(self._buffer)
                del self._buffer[: _V2.size]
                self._ended = self._id == _CLOSE_STDIN
            elif self._num_left and self._buffer:
                data = bytes(self._buffer[: self._num_left])
                del self._buffer[: len(data)]
                self._num_left -= len(data)
                if self._id == _STDIN:
                    return data
                size = _SIZE.match(data) if self._id == _WINDOW_SIZE else None
                if size is not None and self._terminal is not None:
                    self._terminal.rows, self._terminal.columns = int(size[1]), int(size[2])
            else:
                chunk = await self._stream.read()
                self._ended = not chunk
                self._buffer += chunk
        return b""
