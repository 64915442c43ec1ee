"""Run shell scripts on a virtual phone in this process."""

import asyncio
from dataclasses import dataclass

from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.commands import COMMANDS
from virtual_phone.shell.command_streams import CommandIO, Input
from virtual_phone.shell.interpreter import ShellInterpreter
from virtual_phone.shell.shell_state import ShellState
from virtual_phone.virtual_phone import VirtualPhone


@dataclass(frozen=True)
class Done:
    """Output and exit code of a script."""

    out_bytes: bytes
    err: str
    code: int

    @property
    def out(self) -> str:
        return self.out_bytes.decode("utf-8", "surrogateescape")


def probe_phone() -> VirtualPhone:
    """Return a small phone whose touches take effect at once."""
    return VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick")


async def run_later(script: str, phone: VirtualPhone | None = None, stdin: bytes = b"") -> Done:
    """Run a script in the current event loop."""
    out: list[bytes | memoryview] = []
    err: list[bytes | memoryview] = []
    left = [stdin] if stdin else []

    async def read() -> bytes:
        return left.pop() if left else b""

    io = CommandIO(out=out.append, err=err.append, read=Input(read))
    shell = ShellInterpreter(ShellState(phone=phone or probe_phone(), io=io), COMMANDS)
    code = await asyncio.wait_for(shell.run(script), 60)
    return Done(b"".join(out), b"".join(err).decode("utf-8", "surrogateescape"), code)


def run(script: str, phone: VirtualPhone | None = None, stdin: bytes = b"") -> Done:
    """Run a script in a new event loop."""
    return asyncio.run(run_later(script, phone, stdin))
