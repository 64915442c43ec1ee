"""Opens the services of one phone, and reports when the phone is gone."""

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from agentrl.devices.adb.adb_server import AdbServer
from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket, to_device_error
from agentrl.devices.adb.deadline import Deadline
from agentrl.errors import DeviceError, DeviceOffline

log = logging.getLogger(__name__)

_CHECK_S = 1.0
"""Extra time after a call's deadline to find out whether the phone is online."""
FAILURES = (OSError, AdbRefused, struct.error)
"""Exceptions raised by a socket or by parsing its data; `DeviceTransport.failure` converts them."""


class DeviceTransport:
    """Opens services of one phone, each over its own connection to the adb server."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        """Create a transport without connecting; the phone need not be online."""
        self.serial = serial
        self.token: int | None = None
        """Lease token that commands are sent under; the phone refuses ended leases."""
        self.display = ""
        """Id of the display to capture; "" if the phone has only one."""
        self._server = server

    def open(self, service: str, deadline: Deadline) -> AdbSocket:
        """Open a connection to a service of the phone; the caller closes it."""
        link = self._server.open_socket(deadline)
        try:
            link.request(f"host:transport:{self.serial}")
            link.request(service)
        except BaseException:
            link.close()
            raise
        return link

    @contextmanager
    def opened(
        self, service: str, deadline: Deadline, what: str | None = None
    ) -> Iterator[AdbSocket]:
        """Open a connection to a service of the phone; any failure becomes a typed error."""
        try:
            with self.open(service, deadline) as link:
                yield link
        except FAILURES as error:
            raise self.failure(error, what or service, deadline.seconds) from error

    def failure(self, error: Exception, what: str, seconds: float) -> DeviceError:
        """Convert an exception of `FAILURES` to a typed error; `what` was being done."""
        failed = to_device_error(error, f"{self.serial}: {what[:100]}", seconds)
        # The connection to a phone that goes away is closed; it does not time out.
        if isinstance(error, TimeoutError | ConnectionRefusedError):
            return failed
        return self.gone_after(failed) or failed

    def gone_after(self, failed: DeviceError) -> DeviceOffline | None:
        """Return the error to raise instead of `failed` if that happened because the phone is gone.

        Returns:
            An error that includes `failed`; None if the phone is there, or the adb server does not
            say.
        """
        try:
            self.check_online()
        except DeviceOffline as gone:
            return DeviceOffline(f"{failed}. {gone}")
        except DeviceError as silent:
            log.warning("%s", silent)
        return None

    def check_online(self) -> None:
        """Check that the adb server lists the phone as ready."""
        devices = self._server.devices(_CHECK_S)
        state = devices.pop(self.serial, "not connected")
        if state != "device":
            ready = sum(other == "device" for other in devices.values())
            raise DeviceOffline(
                f"{self.serial} is {state}; {ready} others are ready. "
                f"Reconnect it: adb disconnect {self.serial}; adb connect {self.serial}"
            )
