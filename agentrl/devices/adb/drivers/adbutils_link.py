"""adbutils as a driver."""

import socket

from adbutils import AdbConnection
from adbutils.errors import AdbError

from agentrl.devices.adb.adb_socket import Deadline, Link, Refused, connected


class AdbutilsLink(Link, AdbConnection):  # type: ignore[misc]
    """adbutils' connection, without its pause of 10 ms when it closes."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        """See Link."""
        self.deadline = deadline
        self._address = (host, port)
        AdbConnection.__init__(self, host, port)

    @property
    def plug(self) -> socket.socket:
        """See Link.plug."""
        plug: socket.socket = self.conn
        return plug

    def check_accepted(self) -> None:
        """See Link.check_accepted."""
        try:
            self.check_okay()
        except (AdbError, ValueError) as error:
            raise Refused(str(error)) from error

    def _safe_connect(self) -> socket.socket:
        """In the place of adbutils', which starts a server where there is none."""
        return connected(*self._address, self.deadline)
