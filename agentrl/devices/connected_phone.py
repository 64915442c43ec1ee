"""The connection of a phone behind an adb server: shells, tunnels, leases, reconnecting."""

import re
import time
from collections.abc import Callable, Sequence

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_shells import CommandShell, OneShotShell, PersistentShell
from agentrl.devices.adb.adb_socket import AdbRefused, Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import Command, claim_command, quote_command
from agentrl.devices.device import CommandResult, Deadlines
from agentrl.errors import DeviceError, DeviceOffline

_ENDPOINT = re.compile(
    r"tcp:\d{1,5}|local(abstract|reserved|filesystem)?:[\w./@-]{1,100}", re.ASCII
)
WAKE: tuple[Command, ...] = (("input", "keyevent", "KEYCODE_WAKEUP"), ("wm", "dismiss-keyguard"))
_LEAST_S = 1.0
"""Minimum time for connecting, however long the server took to start."""


class ConnectedPhone:
    """Commands, tunnels and the connection itself; the base of `AdbPhone`.

    Callers' commands (`shell`, `batch`) run in a new shell each; our own commands, which leave the
    shell's state unchanged, may run in a persistent one.
    """

    def __init__(
        self,
        server: AdbServer,
        serial: str,
        deadlines: Deadlines | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.serial: str = serial
        self.deadlines: Deadlines = deadlines or Deadlines()
        self.transport = DeviceTransport(server, serial)
        self.one_shot_shell = OneShotShell(self.transport)
        self.persistent_shell = PersistentShell(self.transport, self.one_shot_shell)
        self.internal_shell: CommandShell = self.persistent_shell
        """Runs our own commands; persistent or not."""
        self.wakes = False
        """Whether a dark screen is turned on; see `devices.wake`."""
        self._server = server
        self._on_close = on_close
        self._serialno = ""

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; returns its output."""
        (result,) = self.batch(arguments)
        return self.checked(arguments, result)

    def batch(self, *commands: Sequence[str]) -> list[CommandResult]:
        """Run several commands in order, in one round trip."""
        return self.one_shot_shell.run(commands, Deadline(self.deadlines.command_s))

    def reverse(self, remote: str, local: str) -> None:
        """Forward connections to `remote` on the phone to `local` on the adb server's machine."""
        self._request_tunnel(f"reverse:forward:{_endpoint(remote)};{_endpoint(local)}")

    def reverse_remove(self, remote: str) -> None:
        """Remove what `reverse` set up; does nothing if it does not exist."""
        try:
            self._request_tunnel(f"reverse:killforward:{_endpoint(remote)}")
        except DeviceOffline:
            raise
        except DeviceError as error:
            if not isinstance(error.__cause__, AdbRefused):
                raise

    def _request_tunnel(self, service: str) -> None:
        with self.transport.opened(service, Deadline(self.deadlines.command_s)) as link:
            # A second status follows: the first accepts the request, this one confirms it is done.
            link.check_accepted()

    def serialno(self) -> str:
        """The phone's own serial number, the same over USB and Wi-Fi."""
        if not self._serialno:
            results = self.batch(("getprop", "ro.serialno"), ("getprop", "ro.boot.serialno"))
            names = [result.output.strip() for result in results]
            self._serialno = next((name for name in names if name), self.serial)
        return self._serialno

    def claim(self, token: int) -> None:
        """Make the phone refuse commands sent under any other lease."""
        # It must get through under any lease that the phone still has.
        self.transport.token = None
        command = claim_command(token)
        (result,) = self.run_internal([command])
        self.checked(command, result)
        self.wake_if_asked()

    def wake_if_asked(self) -> None:
        """Turn the screen on and dismiss the lock screen, if `wakes`; one with a PIN stays."""
        if self.wakes:
            self.batch(*WAKE)

    def set_lease(self, token: int | None) -> None:
        """Send all further commands under this lease; None sends them whatever the lease."""
        self.transport.token = token

    def reboot(self) -> None:
        """Reboot the phone; call `reconnect` when it is back."""
        self.transport.check_online()
        try:
            with self.transport.opened("reboot:", Deadline(self.deadlines.command_s)) as link:
                link.receive()
        except DeviceOffline:  # it went down before it could answer
            pass

    def reconnect(self) -> None:
        """Connect the phone, starting the adb server if none runs."""
        # Starting the server may use up the time, but a phone needs some of it to connect.
        end_s = time.monotonic() + self.deadlines.connect_s
        self._server.ensure(self.deadlines.connect_s)
        self._server.connect(self.serial, max(_LEAST_S, end_s - time.monotonic()))
        self.wake_if_asked()

    def close(self) -> None:
        """Close the connections and whatever was started with the phone."""
        self.persistent_shell.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    def checked(self, command: Command, result: CommandResult) -> str:
        """The output of a command, if it succeeded."""
        if result.code:
            raise DeviceError(
                f"{self.serial}: {quote_command(command)[:200]} failed with exit code "
                f"{result.code}: {result.output.strip()[:500]}"
            )
        return result.output

    def run_internal(
        self, commands: Sequence[Command], deadline: Deadline | None = None
    ) -> list[CommandResult]:
        """Run our own commands, which must not change the shell's state."""
        return self.internal_shell.run(commands, deadline or Deadline(self.deadlines.command_s))


def _endpoint(text: str) -> str:
    """The text itself, if it is a tunnel endpoint."""
    if not _ENDPOINT.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a tunnel endpoint such as tcp:8080 or localabstract:name"
        )
    return text
