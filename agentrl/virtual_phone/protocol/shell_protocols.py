"""The two protocols in which a client talks to a shell."""

import contextlib
import struct

from agentrl.virtual_phone.commands import COMMANDS
from agentrl.virtual_phone.protocol.adb_stream import Stream
from agentrl.virtual_phone.shell.interpreter import ShellInterpreter
from agentrl.virtual_phone.shell.redirects import CommandIO
from agentrl.virtual_phone.virtual_phone import VirtualPhone

_V2 = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_MAX_LINE_LENGTH = 1 << 20
_GATHER_S = 0.002
"""For a script's outputs to share a packet."""
_SMALL = 4096
"""Bytes that cost less to copy than to send as a piece of their own."""


async def serve_v1(phone: VirtualPhone, stream: Stream, script: str) -> None:
    """Raw output: stdout and stderr are mixed, and the exit code is not sent."""

    def write(data: bytes | memoryview) -> None:
        if stream.closed:
            raise BrokenPipeError(32, "Broken pipe")
        stream.write(data)

    io = CommandIO(out=write, err=write, read=stream.read, drain=stream.drain)
    with contextlib.suppress(BrokenPipeError):
        await _run(ShellInterpreter(phone=phone, commands=COMMANDS, io=io), script)


async def serve_v2(phone: VirtualPhone, stream: Stream, script: str) -> None:
    """Output, errors and the exit code travel as packets: u8 id, u32 length, bytes."""
    stream.gather_s = _GATHER_S

    def packet(id: int, data: bytes | memoryview) -> None:
        header = _V2.pack(id, len(data))
        for piece in (header + data,) if len(data) < _SMALL else (header, data):
            stream.write(piece)

    io = CommandIO(
        out=lambda data: packet(_STDOUT, data),
        err=lambda data: packet(_STDERR, data),
        read=_StandardInput(stream).read,
        drain=stream.drain,
    )
    shell = ShellInterpreter(phone=phone, commands=COMMANDS, io=io)
    await _run(shell, script)
    packet(_EXIT, bytes([shell.code & 0xFF]))


async def _run(shell: ShellInterpreter, script: str) -> None:
    if script:
        await shell.run(script)
    else:
        await _converse(shell)


class _StandardInput:
    """Decodes standard input from the packets of shell v2, whatever their claimed length."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._id = _STDIN
        self._num_left = 0
        self._ended = False

    async def read(self) -> bytes:
        """The next chunk; empty at the end."""
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
            else:
                chunk = await self._stream.read()
                self._ended = not chunk
                self._buffer += chunk
        return b""


async def _converse(shell: ShellInterpreter) -> None:
    """An interactive shell: run each line as it is typed."""
    prompt = b"virtual:/ $ "
    pending = b""
    shell.io.out(prompt)
    while (chunk := await shell.io.read()) and len(pending) < _MAX_LINE_LENGTH:
        *lines, pending = (pending + chunk.replace(b"\r", b"\n")).split(b"\n")
        for line in lines:
            if line.strip() == b"exit":
                return
            await shell.run(line.decode("utf-8", "surrogateescape"))
            await shell.io.drain()
            shell.io.out(prompt)
