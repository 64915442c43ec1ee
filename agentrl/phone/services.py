"""What a client can open on a phone: shells, exec and file transfer."""

import struct
from collections.abc import Coroutine

from agentrl.phone import sync
from agentrl.phone.commands import COMMANDS
from agentrl.phone.phone import Phone
from agentrl.phone.shell import Shell
from agentrl.phone.transport import Stream

FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir"
"""`abb` and `abb_exec` stay out: with them, install speaks another protocol."""

_V2 = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


def banner(phone: Phone) -> str:
    """Who the phone says it is when the adb server connects."""
    named = (f"{key}={phone.properties[key]};" for key in _BANNER_PROPERTIES)
    return f"device::{''.join(named)}features={FEATURES}"


_BANNER_PROPERTIES = ("ro.product.name", "ro.product.model", "ro.product.device")


def open_service(phone: Phone, stream: Stream, name: str) -> Coroutine[None, None, None] | None:
    """The coroutine that serves `name`, or None if there is no such service."""
    kind, _, rest = name.partition(":")
    service, *options = kind.split(",")
    if service == "shell":
        run = _shell_v2 if "v2" in options else _shell_v1
        return run(phone, stream, rest)
    if service == "exec":
        return _shell_v1(phone, stream, rest)
    if service == "sync":
        return sync.serve(phone.files, stream)
    if service == "reboot":
        return _reboot(phone)
    return None


async def _reboot(phone: Phone) -> None:
    phone.on_power("reboot")


async def _shell_v1(phone: Phone, stream: Stream, script: str) -> None:
    """Everything that is written goes to the client, nothing tells the exit code."""
    shell = Shell(
        phone=phone, commands=COMMANDS, out=stream.write, err=stream.write, read=stream.read
    )
    if script:
        await shell.run(script)
    else:
        await _converse(shell)


async def _shell_v2(phone: Phone, stream: Stream, script: str) -> None:
    """Output, errors and the exit code travel as packets: u8 id, u32 length, bytes."""

    def packet(id: int, data: bytes | memoryview) -> None:
        stream.write(_V2.pack(id, len(data)))
        stream.write(data)

    shell = Shell(
        phone=phone,
        commands=COMMANDS,
        out=lambda data: packet(_STDOUT, data),
        err=lambda data: packet(_STDERR, data),
        read=_StandardInput(stream).read,
    )
    if script:
        await shell.run(script)
    else:
        await _converse(shell)
    packet(_EXIT, bytes([shell.code & 0xFF]))


class _StandardInput:
    """Standard input out of the packets of shell v2."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._ended = False

    async def read(self) -> bytes:
        while not self._ended:
            if len(self._buffer) >= _V2.size:
                id, length = _V2.unpack_from(self._buffer)
                end = _V2.size + length
                if len(self._buffer) >= end:
                    data = bytes(self._buffer[_V2.size : end])
                    del self._buffer[:end]
                    self._ended = id == _CLOSE_STDIN
                    if id == _STDIN and data:
                        return data
                    continue
            chunk = await self._stream.read()
            self._ended = not chunk
            self._buffer += chunk
        return b""


async def _converse(shell: Shell) -> None:
    """A shell without a script: one line after the other, as they are typed."""
    prompt = b"virtual:/ $ "
    pending = b""
    shell.out(prompt)
    while chunk := await shell.read():
        *lines, pending = (pending + chunk.replace(b"\r", b"\n")).split(b"\n")
        for line in lines:
            if line.strip() == b"exit":
                return
            await shell.run(line.decode("utf-8", "surrogateescape"))
            shell.out(prompt)
