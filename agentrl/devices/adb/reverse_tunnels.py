"""Tunnels from a phone back to the machine of the adb server (`adb reverse`)."""

import re

from agentrl.devices.adb.adb_socket import AdbRefused, Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.errors import DeviceError, DeviceOffline

_END = re.compile(r"tcp:\d{1,5}|local(abstract|reserved|filesystem)?:[\w./@-]{1,100}", re.ASCII)


class ReverseTunnels:
    """Opens and closes the tunnels of one phone."""

    def __init__(self, line: DeviceTransport) -> None:
        """No tunnel yet."""
        self._transport = line

    def begin(self, remote: str, local: str, deadline: Deadline) -> None:
        """Forward connections to `remote` on the phone to `local` here.

        Raises:
            ValueError: an invalid endpoint.
            DeviceError: the phone refuses.
        """
        self._ask(f"reverse:forward:{_end(remote)};{_end(local)}", deadline)

    def end(self, remote: str, deadline: Deadline) -> None:
        """Close a tunnel; does nothing if it does not exist.

        Raises:
            ValueError: an invalid endpoint.
            DeviceError: the phone cannot be reached.
        """
        try:
            self._ask(f"reverse:killforward:{_end(remote)}", deadline)
        except DeviceOffline:
            raise
        except DeviceError as error:
            if not isinstance(error.__cause__, AdbRefused):
                raise

    def _ask(self, service: str, deadline: Deadline) -> None:
        with self._transport.opened(service, deadline) as link:
            # A second status follows: the first accepts the request, this one confirms it is done.
            link.check_accepted()


def _end(spec: str) -> str:
    if not _END.fullmatch(spec):
        raise ValueError(
            f"{spec!r} is not a tunnel endpoint such as tcp:8080 or localabstract:name"
        )
    return spec
