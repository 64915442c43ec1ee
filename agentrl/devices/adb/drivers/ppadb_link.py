"""pure-python-adb as a driver."""

import re
import socket
import struct

from ppadb.connection import Connection

from agentrl.devices.adb.adb_socket import Deadline, Link, Refused

_ITS_OWN_WORDS = re.compile(r"^ERROR: 'FAIL' [0-9a-fA-F]{4}")
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


class PpadbLink(Link, Connection):  # type: ignore[misc]
    """pure-python-adb's connection, with reads that wait for all that they ask for."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        """See Link."""
        self.deadline = deadline
        Connection.__init__(self, host, port, deadline.left_s())
        try:
            self.connect()
        except RuntimeError as error:  # it hides what happened behind a message
            raise (error.__context__ or error) from None
        self.plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # It asks for a reset on closing, which would lose what the server has not read yet.
        self.plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))

    @property
    def plug(self) -> socket.socket:
        """See Link.plug."""
        plug: socket.socket = self.socket
        return plug

    def check_accepted(self) -> None:
        """See Link.check_accepted."""
        try:
            self.check_status()
        except (RuntimeError, UnicodeDecodeError) as error:
            raise Refused(_ITS_OWN_WORDS.sub("", str(error))) from error

    def _recv(self, length: int) -> bytes:
        """The four letters of an answer, or what stands behind a refusal: a length and a text."""
        head = self.read(4)
        if length > 4 and _LENGTH.fullmatch(head):
            return head + self.read(int(head, 16))
        return head
