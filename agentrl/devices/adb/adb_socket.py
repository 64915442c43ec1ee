"""One socket to the adb server, whose every read and write ends at one deadline.

What differs between the libraries that speak ADB is how they connect and how they ask for a
service (`agentrl.devices.adb.drivers`). Everything else is here, because their own reads have no
deadline and join what comes byte string by byte string: 150 ms for one frame.
"""

import contextlib
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from agentrl.errors import DeviceError, DeviceTimeout

T = TypeVar("T")

_LONGEST_REQUEST = 0xFFFF
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it."""


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


class Refused(Exception):
    """The adb server or the phone said no; the message is theirs."""


class Link(ABC):
    """A connection to the adb server; errors are `TimeoutError`, `OSError` and `Refused`.

    See `device_error` for what to make of them.
    """

    deadline: Deadline
    """Of everything that is done over this connection; a longer talk sets it anew."""

    @abstractmethod
    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        """Connect.

        Args:
            host: of the adb server.
            port: of the adb server.
            deadline: of everything that is done over this connection.
        """

    @property
    @abstractmethod
    def plug(self) -> socket.socket:
        """The connected socket."""

    @abstractmethod
    def check_accepted(self) -> None:
        """Read the four letters that answer a request.

        Raises:
            Refused: it is not accepted.
        """

    def request(self, service: str) -> None:
        """Send one request and have it accepted.

        Raises:
            Refused: it is not, or it cannot be sent at all.
        """
        try:
            data = service.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"half a character (a lone surrogate) cannot be sent: {error}") from error
        if len(data) > _LONGEST_REQUEST:
            raise Refused(f"a request of {len(data)} bytes; at most {_LONGEST_REQUEST} fit")
        self.send(b"%04x%b" % (len(data), data))
        self.check_accepted()

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.plug.settimeout(self.deadline.left_s())
        self.plug.sendall(data)

    def read_into(self, view: memoryview) -> int:
        """Fill a buffer; fewer bytes only where the other side has closed."""
        filled = 0
        while filled < len(view):
            self.plug.settimeout(self.deadline.left_s())
            count = self.plug.recv_into(view[filled:])
            if not count:
                break
            filled += count
        return filled

    def read(self, count: int) -> bytes:
        """So many bytes; fewer only where the other side has closed."""
        buffer = bytearray(count)
        return bytes(buffer[: self.read_into(memoryview(buffer))])

    def read_block(self) -> str:
        """A text behind its length of four hex digits.

        Raises:
            Refused: the other side has failed or closed, or sent something else.
        """
        length = self.read(4)
        if length == b"FAIL":  # it accepts what takes time, and says later that it has failed
            raise Refused(self.read_block())
        try:
            return self.read(int(length, 16)).decode("utf-8", "replace")
        except ValueError:
            raise Refused(f"no length of an answer: {length!r}") from None

    def receive(self) -> bytes:
        """What comes next, however much; empty where the other side has closed.

        The adb server does not send a second small piece before the first is acknowledged, which
        systems put off for 40 ms unless told otherwise.
        """
        if _QUICKACK is not None and self.plug.family != socket.AF_UNIX:
            self.plug.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)  # it does not stay so
        self.plug.settimeout(self.deadline.left_s())
        return bytes(self.plug.recv(1 << 16))

    def wait(self, seconds: float) -> bool:
        """Whether there is something to read, or the other side has closed, within that time."""
        return bool(select.select([self.plug], [], [], seconds)[0])

    def has_ended(self) -> bool:
        """Whether it is closed, here or by the other side with nothing left to be read."""
        if self.plug.fileno() < 0:
            return True
        return self.wait(0) and not self.plug.recv(1, socket.MSG_PEEK)

    def close(self) -> None:
        """Close at once; a read that runs in another thread ends."""
        with contextlib.suppress(OSError):  # the other side may have been faster
            self.plug.shutdown(socket.SHUT_RDWR)
        self.plug.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A socket to the adb server, which waits for nothing before it sends."""
    try:
        plug = socket.create_connection((host, port), deadline.left_s())
    except UnicodeError as error:  # a host such as a..b
        raise OSError(f"there is no host {host!r}: {error}") from error
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plug


def within(deadline: Deadline, call: Callable[[], T]) -> T:
    """The result of a call that knows no deadline; in a thread that is left behind if it hangs.

    Raises:
        TimeoutError: it has not ended in time.
    """
    done: list[tuple[T | None, BaseException | None]] = []

    def work() -> None:
        try:
            done.append((call(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    if not done:
        raise TimeoutError
    result, error = done[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def device_error(error: Exception, what: str, seconds: float) -> DeviceError:
    """A failure of a link as a typed error.

    Args:
        error: `TimeoutError`, `OSError` or `Refused`.
        what: was asked of whom.
        seconds: the deadline of the call.
    """
    if isinstance(error, TimeoutError):
        return DeviceTimeout(f"{what}: no answer within {round(seconds, 2):g} s")
    if isinstance(error, ConnectionRefusedError):
        return DeviceError(f"{what}: the adb server is gone; start it with: adb start-server")
    return DeviceError(f"{what}: {error or type(error).__name__}")
