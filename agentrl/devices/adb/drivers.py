"""Drivers: the libraries that speak ADB, each wrapped as an `AdbSocket`.

They differ in how they connect to the adb server and how they check that a request was accepted.
Quoting, deadlines, reading and typed errors are shared code. Each library is imported on first use.
"""

import re
import socket
import struct
from collections.abc import Callable, Mapping
from functools import cache

from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket, Deadline, connect_tcp
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_PREFIX = re.compile(r"^ERROR: 'FAIL' [0-9a-fA-F]{4}")
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


@cache
def socket_class(driver: str) -> type[AdbSocket]:
    """The `AdbSocket` class of a driver.

    Raises:
        ConfigError: an unknown driver, or its library is not installed.
    """
    if driver not in DRIVERS:
        known = ", ".join(DRIVERS)
        raise ConfigError(
            f"devices.driver={driver} is not one of {known}{did_you_mean(driver, DRIVERS)}"
        )
    try:
        return DRIVERS[driver]()
    except ImportError as error:
        raise ConfigError(
            f"devices.driver={driver}: its library is not installed ({error}); "
            f"pip install 'agentrl-screens[{driver}]', or use devices.driver=adbutils"
        ) from error


def _adbutils_socket() -> type[AdbSocket]:
    from adbutils import AdbConnection
    from adbutils.errors import AdbError

    class AdbutilsSocket(AdbSocket, AdbConnection):  # type: ignore[misc]
        """A connection of adbutils, without its 10 ms pause on closing."""

        def __init__(self, host: str, port: int, deadline: Deadline) -> None:
            self.deadline = deadline
            self._address = (host, port)
            AdbConnection.__init__(self, host, port)

        @property
        def raw_socket(self) -> socket.socket:
            raw_socket: socket.socket = self.conn
            return raw_socket

        def check_accepted(self) -> None:
            try:
                self.check_okay()
            except (AdbError, ValueError) as error:
                raise AdbRefused(str(error)) from error

        def _safe_connect(self) -> socket.socket:
            """Overrides adbutils, which would start a server if none is running."""
            return connect_tcp(*self._address, self.deadline)

    return AdbutilsSocket


def _ppadb_socket() -> type[AdbSocket]:
    from ppadb.connection import Connection

    class PpadbSocket(AdbSocket, Connection):  # type: ignore[misc]
        """A connection of pure-python-adb whose reads wait for all requested bytes."""

        def __init__(self, host: str, port: int, deadline: Deadline) -> None:
            self.deadline = deadline
            Connection.__init__(self, host, port, deadline.left_s())
            try:
                self.connect()
            except RuntimeError as error:  # ppadb hides the cause behind a message
                raise (error.__context__ or error) from None
            self.raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # ppadb requests a reset on closing, which would lose what the server has not read yet.
            self.raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))

        @property
        def raw_socket(self) -> socket.socket:
            raw_socket: socket.socket = self.socket
            return raw_socket

        def check_accepted(self) -> None:
            try:
                self.check_status()
            except (RuntimeError, UnicodeDecodeError) as error:
                raise AdbRefused(_PREFIX.sub("", str(error))) from error

        def _recv(self, length: int) -> bytes:
            """The four-letter status, or the length and message after a failure."""
            head = self.read(4)
            if length > 4 and _LENGTH.fullmatch(head):
                return head + self.read(int(head, 16))
            return head

    return PpadbSocket


DRIVERS: Mapping[str, Callable[[], type[AdbSocket]]] = {
    "adbutils": _adbutils_socket,
    "ppadb": _ppadb_socket,
}
