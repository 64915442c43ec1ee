"""One socket to the adb server, on adbutils' connection.

adbutils' own connection sleeps 10 ms when it closes and joins what it reads byte string by byte
string, which costs 150 ms for one frame. Here every read has what is left of one deadline.
"""

import socket
import time

from adbutils import AdbConnection
from adbutils.errors import AdbError, AdbTimeout

from agentrl.errors import DeviceError, DeviceTimeout


class Deadline:
    """One moment that every wait of a call ends at."""

    def __init__(self, seconds: float) -> None:
        """Ends `seconds` from now."""
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds that are left.

        Raises:
            TimeoutError: none.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Link(AdbConnection):  # type: ignore[misc]
    """A connection to the adb server whose every read and write ends at one deadline.

    Errors are `TimeoutError`, `OSError` and adbutils' `AdbError`; see `told`.
    """

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        """Connect.

        Args:
            host: of the adb server.
            port: of the adb server.
            deadline: of everything that is done over this connection.
        """
        self._address = (host, port)
        self._deadline = deadline
        super().__init__(host, port)

    def request(self, service: str) -> None:
        """Send one request and have it accepted."""
        data = service.encode("utf-8", "surrogateescape")
        if len(data) > 0xFFFF:
            raise AdbError(f"a request of {len(data)} bytes; at most 65535 fit")
        self.conn.settimeout(self._deadline.left_s())
        self.conn.sendall(b"%04x%b" % (len(data), data))
        self.check_okay()

    def read_into(self, view: memoryview) -> int:
        """Fill a buffer; fewer bytes only where the other side has closed."""
        filled = 0
        while filled < len(view):
            self.conn.settimeout(self._deadline.left_s())
            count = self.conn.recv_into(view[filled:])
            if not count:
                break
            filled += count
        return filled

    def receive(self) -> bytes:
        """What comes next, however much; empty where the other side has closed."""
        self.conn.settimeout(self._deadline.left_s())
        return bytes(self.conn.recv(1 << 16))

    def close(self) -> None:
        """Close at once."""
        if not self.closed:
            self.conn.close()

    def _read_fully(self, n: int) -> bytes:
        buffer = bytearray(n)
        return bytes(buffer[: self.read_into(memoryview(buffer))])

    def _safe_connect(self) -> socket.socket:
        """In the place of adbutils', which starts a server where there is none."""
        connected = socket.create_connection(self._address, self._deadline.left_s())
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected


def is_timeout(error: Exception) -> bool:
    """Whether a link failed because its deadline passed."""
    return isinstance(error, TimeoutError | AdbTimeout)


def told(error: Exception, what: str, seconds: float) -> DeviceError:
    """A failure of a link as a typed error.

    Args:
        error: `TimeoutError`, `OSError`, `EOFError` or `AdbError`.
        what: was asked of whom.
        seconds: the deadline of the call.
    """
    if is_timeout(error):
        return DeviceTimeout(f"{what}: no answer within {seconds:g} s")
    if isinstance(error, ConnectionRefusedError):
        return DeviceError(f"{what}: the adb server is gone; start it with: adb start-server")
    return DeviceError(f"{what}: {error or type(error).__name__}")
