"""ADB through adbutils, which is always installed."""

import socket

from adbutils import AdbConnection
from adbutils.errors import AdbError

from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket, connect_tcp
from agentrl.devices.adb.deadline import Deadline


class AdbutilsSocket(AdbSocket, AdbConnection):  # type: ignore[misc]
    """An adbutils connection, without its 10 ms pause on closing."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        self.deadline = deadline
        self._address = (host, port)
        AdbConnection.__init__(self, host, port)

    @property
    def raw_socket(self) -> socket.socket:
        """See AdbSocket.raw_socket."""
        raw_socket: socket.socket = self.conn
        return raw_socket

    def check_accepted(self) -> None:
        """See AdbSocket.check_accepted."""
        try:
            self.check_okay()
        except (AdbError, ValueError) as error:
            raise AdbRefused(str(error)) from error

    def _safe_connect(self) -> socket.socket:
        """Override adbutils, which would start a server if none is running."""
        return connect_tcp(*self._address, self.deadline)
