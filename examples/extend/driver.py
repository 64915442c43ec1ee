"""A driver of your own: ADB over a plain socket, without any library.

    agentrl check driver driver.py:PlainDriver
    agentrl train number_game devices.driver=driver.py:PlainDriver

A driver connects to the adb server and reads the status of a request. `AdbSocket` provides the
rest: requests, deadlines, reading, typed errors and shells.
"""

import socket

from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket, connect_tcp
from agentrl.devices.adb.deadline import Deadline


class PlainDriver(AdbSocket):
    """Talks to the adb server over a plain TCP socket."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        self.deadline = deadline
        self._socket = connect_tcp(host, port, deadline)

    @property
    def raw_socket(self) -> socket.socket:
        return self._socket

    def check_accepted(self) -> None:
        status = self.read(4)
        if status == b"FAIL":
            raise AdbRefused(self.read_block())  # the server's message
        if status != b"OKAY":
            raise AdbRefused(f"the server answered {status!r}, neither OKAY nor FAIL")
