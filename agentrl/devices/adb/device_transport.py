"""The way to one phone: opens its services, and says so where the phone is gone."""

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from agentrl.devices.adb.adb_server import AdbServer
from agentrl.devices.adb.adb_socket import Deadline, Link, Refused, device_error
from agentrl.errors import DeviceError, DeviceOffline

log = logging.getLogger(__name__)

_CHECK_S = 1.0
"""So much longer than its deadline a call may take, to say whether the phone is there."""
FAILURES = (OSError, Refused, struct.error)
"""What a link and what is read from it can raise; `Line.failure` makes typed errors of them."""


class Line:
    """Opens services of the phone of one serial, each over a connection of its own."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        """A line to a phone, which need not be there.

        Args:
            server: that knows the phone.
            serial: of the phone.
        """
        self.serial = serial
        self.token: int | None = None
        """Of the lease that commands are sent under; the phone refuses them where it has ended."""
        self._server = server

    def open(self, service: str, deadline: Deadline) -> Link:
        """A connection on which the service has been accepted; the caller closes it.

        Raises:
            OSError, Refused: see Link.
        """
        link = self._server.link(deadline)
        try:
            link.request(f"host:transport:{self.serial}")
            link.request(service)
        except BaseException:
            link.close()
            raise
        return link

    @contextmanager
    def opened(self, service: str, deadline: Deadline, what: str | None = None) -> Iterator[Link]:
        """A service of the phone, with one deadline for all that is done with it.

        Args:
            service: as adbd names it.
            deadline: of everything.
            what: to call it in messages; None takes the service.

        Raises:
            DeviceError: it failed, in whatever way.
        """
        try:
            with self.open(service, deadline) as link:
                yield link
        except FAILURES as error:
            raise self.failure(error, what or service, deadline.seconds) from error

    def failure(self, error: Exception, what: str, seconds: float) -> DeviceError:
        """A failure of one of `FAILURES` as a typed error."""
        if not isinstance(error, TimeoutError):
            try:
                self.check_online()
            except DeviceOffline as gone:
                return gone
            except DeviceError as silent:  # what happened first says more
                log.info("%s", silent)
        return device_error(error, f"{self.serial}: {what[:100]}", seconds)

    def check_online(self) -> None:
        """Say so if the reason of a failure is that the phone is gone.

        Raises:
            DeviceOffline: it is.
            DeviceError: the server does not say.
        """
        devices = self._server.devices(_CHECK_S)
        state = devices.pop(self.serial, "not connected")
        if state != "device":
            ready = sum(other == "device" for other in devices.values())
            raise DeviceOffline(
                f"{self.serial} is {state}; {ready} others are ready. "
                f"Reconnect it: adb disconnect {self.serial}; adb connect {self.serial}"
            )
