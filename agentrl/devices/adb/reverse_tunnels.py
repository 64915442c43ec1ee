"""Tunnels from a phone back to the machine of the adb server (`adb reverse`)."""

import re

from agentrl.devices.adb.adb_socket import Deadline, Refused
from agentrl.devices.adb.device_transport import Line
from agentrl.errors import DeviceError, DeviceOffline

_END = re.compile(r"tcp:\d{1,5}|local(abstract|reserved|filesystem)?:[\w./@-]{1,100}", re.ASCII)


class Tunnels:
    """Begins and ends the tunnels of one phone."""

    def __init__(self, line: Line) -> None:
        """None yet."""
        self._line = line

    def begin(self, remote: str, local: str, deadline: Deadline) -> None:
        """Have connections to `remote` on the phone arrive at `local` here.

        Raises:
            ValueError: one of them is no end of a tunnel.
            DeviceError: the phone refuses.
        """
        self._ask(f"reverse:forward:{_end(remote)};{_end(local)}", deadline)

    def end(self, remote: str, deadline: Deadline) -> None:
        """End a tunnel; nothing happens where there is none.

        Raises:
            ValueError: it is no end of a tunnel.
            DeviceError: the phone cannot be reached.
        """
        try:
            self._ask(f"reverse:killforward:{_end(remote)}", deadline)
        except DeviceOffline:
            raise
        except DeviceError as error:
            if not isinstance(error.__cause__, Refused):
                raise

    def _ask(self, service: str, deadline: Deadline) -> None:
        with self._line.opened(service, deadline) as link:
            # Twice: that the phone listens to the request, and that it has done it.
            link.check_accepted()


def _end(spec: str) -> str:
    if not _END.fullmatch(spec):
        raise ValueError(f"{spec!r} is no end of a tunnel, such as tcp:8080 or localabstract:name")
    return spec
