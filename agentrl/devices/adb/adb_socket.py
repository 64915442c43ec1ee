"""One socket to the adb server; all reads and writes share one deadline.

The ADB client libraries only connect and request a service (`agentrl.devices.adb.drivers`).
Everything else is here, because the libraries' reads have no deadline and concatenate byte strings,
which takes 150 ms per frame.
"""

import contextlib
import select
import socket
from abc import ABC, abstractmethod

from agentrl.devices.adb.deadline import Deadline
from agentrl.errors import DeviceError, DeviceTimeout

_CHUNK = 1 << 18
"""Maximum number of bytes per receive call."""
_LONGEST_REQUEST = 0xFFFF
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""TCP_QUICKACK exists only on Linux."""


class AdbRefused(Exception):
    """The adb server or the phone refused a request, with the given message."""


class AdbSocket(ABC):
    """A connection to the adb server; raises `TimeoutError`, `OSError` and `AdbRefused`.

    `to_device_error` turns these into typed errors.
    """

    deadline: Deadline
    """Deadline of all operations on this connection; long-lived connections replace it per
    call."""

    @abstractmethod
    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        """Connect.

        Args:
            host: host of the adb server.
            port: port of the adb server.
            deadline: deadline of all operations on this connection.
        """

    @property
    @abstractmethod
    def raw_socket(self) -> socket.socket:
        """The connected socket."""

    @abstractmethod
    def check_accepted(self) -> None:
        """Read the four-letter status of a request.

        Raises:
            AdbRefused: the request was not accepted.
        """

    def request(self, service: str) -> None:
        """Send one request and check that it is accepted.

        Raises:
            AdbRefused: the request is not accepted, or cannot be sent.
        """
        try:
            data = service.encode()
        except UnicodeEncodeError as error:
            raise AdbRefused(f"a lone surrogate cannot be sent: {error}") from error
        if len(data) > _LONGEST_REQUEST:
            raise AdbRefused(f"the request has {len(data)} bytes; the limit is {_LONGEST_REQUEST}")
        self.send(b"%04x%b" % (len(data), data))
        self.check_accepted()

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        self.raw_socket.settimeout(self.deadline.left_s())
        self.raw_socket.sendall(data)

    def read_into(self, view: memoryview) -> int:
        """Fill a buffer; return how many bytes were read, fewer only if the other side closed."""
        filled = 0
        while filled < len(view):
            self.raw_socket.settimeout(self.deadline.left_s())
            count = self.raw_socket.recv_into(view[filled:])
            if not count:
                break
            filled += count
        return filled

    def read(self, count: int) -> bytes:
        """Read `count` bytes; fewer only if the other side has closed."""
        buffer = bytearray(count)
        return bytes(buffer[: self.read_into(memoryview(buffer))])

    def read_block(self) -> str:
        """Read a string prefixed with its length as four hex digits.

        Raises:
            AdbRefused: the other side reported a failure, closed, or sent something else.
        """
        length = self.read(4)
        # Slow requests are accepted first, and may fail later.
        if length == b"FAIL":
            raise AdbRefused(self.read_block())
        try:
            return self.read(int(length, 16)).decode("utf-8", "replace")
        except ValueError:
            raise AdbRefused(f"expected the length of an answer, got {length!r}") from None

    def receive(self) -> bytes:
        """Return the next available bytes; empty if the other side has closed."""
        # The adb server does not send a second small packet before the first is acknowledged, and
        # the kernel delays acknowledgments by 40 ms without this option, which each read resets.
        if _QUICKACK is not None and self.raw_socket.family != socket.AF_UNIX:
            self.raw_socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        self.raw_socket.settimeout(self.deadline.left_s())
        return bytes(self.raw_socket.recv(_CHUNK))

    def read_all(self) -> bytes:
        """Read until the other side closes."""
        return b"".join(iter(self.receive, b""))

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for data or the end of the connection; return whether it came."""
        return bool(select.select([self.raw_socket], [], [], seconds)[0])

    def has_ended(self) -> bool:
        """Return whether the connection is closed on either side, with nothing left to read."""
        if self.raw_socket.fileno() < 0:
            return True
        return self.wait(0) and not self.raw_socket.recv(1, socket.MSG_PEEK)

    def detach(self) -> socket.socket:
        """Return the connection without a timeout; closing this object no longer closes it."""
        # The libraries close their own socket when they are garbage-collected.
        detached = self.raw_socket.dup()
        detached.settimeout(None)
        self.raw_socket.close()
        return detached

    def close(self) -> None:
        """Close immediately; this ends a read in another thread."""
        # `close` alone would not wake a reading thread; the other side may have closed first.
        with contextlib.suppress(OSError):
            self.raw_socket.shutdown(socket.SHUT_RDWR)
        self.raw_socket.close()

    def __enter__(self) -> "AdbSocket":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connect_tcp(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect to the adb server with TCP_NODELAY."""
    try:
        raw_socket = socket.create_connection((host, port), deadline.left_s())
    except UnicodeError as error:  # a host such as a..b
        raise OSError(f"unknown host {host!r}: {error}") from error
    raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw_socket


def to_device_error(error: Exception, what: str, seconds: float) -> DeviceError:
    """Convert a failure of a link to a typed error; `what` names the request and its recipient."""
    if isinstance(error, TimeoutError):
        return DeviceTimeout(f"{what}: no answer within {round(seconds, 2):g} s")
    if isinstance(error, ConnectionRefusedError):
        return DeviceError(f"{what}: the adb server is not running; run: adb start-server")
    return DeviceError(f"{what}: {error or type(error).__name__}")
