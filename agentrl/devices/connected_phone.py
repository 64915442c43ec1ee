"""A phone behind an adb server, as far as its connection goes."""

import time
from collections.abc import Callable, Sequence

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_shells import KeptShell, Shell, ShellPerCall
from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import Line
from agentrl.devices.adb.reverse_tunnels import Tunnels
from agentrl.devices.adb.shell_script import Command, holding, spelled
from agentrl.devices.device import Deadlines, Result
from agentrl.errors import DeviceError, DeviceOffline

_LEAST_S = 1.0
"""To connect, however long the server took to start."""


class ConnectedPhone:
    """Commands, tunnels and the connection itself; what `AdbPhone` builds on.

    What a caller gives to `shell` and `batch` runs in a shell of its own; our own commands, which
    leave a shell as they found it, may run in one that is kept.
    """

    def __init__(
        self,
        server: AdbServer,
        serial: str,
        deadlines: Deadlines | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Not connected before `reconnect`; see AdbPhone."""
        self.serial: str = serial
        self.deadlines: Deadlines = deadlines or Deadlines()
        self.line = Line(server, serial)
        self.per_call = ShellPerCall(self.line)
        self.kept = KeptShell(self.line, self.per_call)
        self.own_shell: Shell = self.kept
        """Runs our own commands."""
        self._server = server
        self._on_close = on_close
        self._tunnels = Tunnels(self.line)
        self._serialno = ""

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; its output."""
        (result,) = self.batch(arguments)
        return self.checked(arguments, result)

    def batch(self, *commands: Sequence[str]) -> list[Result]:
        """Run several commands one after the other in one round trip."""
        return self.per_call.run(commands, Deadline(self.deadlines.command_s))

    def reverse(self, remote: str, local: str) -> None:
        """Have connections to `remote` on the phone arrive at `local` on the server's machine."""
        self._tunnels.begin(remote, local, Deadline(self.deadlines.command_s))

    def reverse_remove(self, remote: str) -> None:
        """End what `reverse` began; nothing happens where there is none."""
        self._tunnels.end(remote, Deadline(self.deadlines.command_s))

    def serialno(self) -> str:
        """Who the phone says it is, by whatever way it is connected."""
        if not self._serialno:
            told = self.batch(("getprop", "ro.serialno"), ("getprop", "ro.boot.serialno"))
            names = [result.output.strip() for result in told]
            self._serialno = next((name for name in names if name), self.serial)
        return self._serialno

    def hold(self, token: int) -> None:
        """Have the phone refuse what is sent under other leases than this one."""
        self.line.token = None
        command = holding(token)
        (result,) = self.run_own([command])
        self.checked(command, result)

    def send_under(self, token: int | None) -> None:
        """Send every command under a lease from now on; None sends it whoever holds the phone."""
        self.line.token = token

    def reboot(self) -> None:
        """Have the phone start again; `reconnect` when it is back."""
        self.line.check_online()
        try:
            with self.line.opened("reboot:", Deadline(self.deadlines.command_s)) as link:
                link.receive()
        except DeviceOffline:  # it went before it could answer
            pass

    def reconnect(self) -> None:
        """Connect the phone, starting the adb server if none runs."""
        end_s = time.monotonic() + self.deadlines.connect_s
        self._server.ensure(self.deadlines.connect_s)
        self._server.connect(self.serial, max(_LEAST_S, end_s - time.monotonic()))

    def close(self) -> None:
        """Give the connections back; what came with the phone is ended."""
        self.kept.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    def checked(self, command: Command, result: Result) -> str:
        """The output of a command that succeeded.

        Raises:
            DeviceError: it did not.
        """
        if result.code:
            raise DeviceError(
                f"{self.serial}: {spelled(command)[:200]} failed with code {result.code}: "
                f"{result.output.strip()[:500]}"
            )
        return result.output

    def run_own(
        self, commands: Sequence[Command], deadline: Deadline | None = None
    ) -> list[Result]:
        """Run commands of our own, which leave the shell as they found it."""
        return self.own_shell.run(commands, deadline or Deadline(self.deadlines.command_s))
