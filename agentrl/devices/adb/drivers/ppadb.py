"""ADB through pure-python-adb, an optional extra."""

import re
import socket
import struct

from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.errors import ConfigError

try:
    from ppadb.connection import Connection
except ImportError as error:
    raise ConfigError(
        f"pure-python-adb is not installed ({error}); run pip install 'agentrl-screens[ppadb]', or "
        "use devices.driver=adbutils"
    ) from error

_PREFIX = re.compile(r"^ERROR: 'FAIL' [0-9a-fA-F]{4}")
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


class PpadbSocket(AdbSocket, Connection):  # type: ignore[misc]
    """A pure-python-adb connection whose reads wait for all requested bytes."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        self.deadline = deadline
        Connection.__init__(self, host, port, deadline.left_s())
        try:
            self.connect()
        except RuntimeError as error:  # ppadb hides the cause behind a message
            raise (error.__context__ or error) from None
        self.raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # ppadb requests a reset on closing, which would lose data the server has not read yet.
        self.raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))

    @property
    def raw_socket(self) -> socket.socket:
        """See AdbSocket.raw_socket."""
        raw_socket: socket.socket = self.socket
        return raw_socket

    def check_accepted(self) -> None:
        """See AdbSocket.check_accepted."""
        try:
            self.check_status()
        except (RuntimeError, UnicodeDecodeError) as error:
            raise AdbRefused(_PREFIX.sub("", str(error))) from error

    def _recv(self, length: int) -> bytes:
        """Read the four-letter status, or the length and message after a failure."""
        head = self.read(4)
        if length > 4 and _LENGTH.fullmatch(head):
            return head + self.read(int(head, 16))
        return head
