"""From a phone to this machine, with nothing installed on the phone: `adb reverse`."""

from typing import Protocol

from agentrl.devices.adb import AdbServer
from agentrl.devices.line import Line
from agentrl.devices.link import Deadline
from agentrl.devices.tunnels import Tunnels


class Tunnel(Protocol):
    """What a page needs of a phone beside the device protocol.

    Errors of every call: DeviceOffline, DeviceTimeout, DeviceError.
    """

    def reverse(self, remote: str, local: str) -> None:
        """Whoever connects to `remote` on the phone (`tcp:8000`) reaches `local` here."""

    def reverse_remove(self, remote: str) -> None:
        """End it."""


class AdbTunnel:
    """`adb reverse` of one phone, asked of the adb server."""

    def __init__(self, server: AdbServer, serial: str, deadline_s: float = 5.0) -> None:
        """A phone that the server knows.

        Args:
            server: a running adb server.
            serial: of the phone.
            deadline_s: of every call.
        """
        self._tunnels = Tunnels(Line(server, serial))
        self._deadline_s = deadline_s

    def reverse(self, remote: str, local: str) -> None:
        """Whoever connects to `remote` on the phone (`tcp:8000`) reaches `local` here."""
        self._tunnels.begin(remote, local, Deadline(self._deadline_s))

    def reverse_remove(self, remote: str) -> None:
        """End it."""
        self._tunnels.end(remote, Deadline(self._deadline_s))
