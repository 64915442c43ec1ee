"""The list of phones that the adb server knows, kept up to date."""

import logging
import threading
from collections.abc import Generator

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_socket import AdbRefused, to_device_error
from agentrl.devices.adb.deadline import Deadline
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

_LOOK_S = 0.5
KnownDevices = dict[str, str]
"""Maps the serial of every phone to its state; `device` means ready."""


class DeviceTracker:
    """Keeps the latest list of phones, updated by a thread."""

    def __init__(self, server: AdbServer, closing: threading.Event) -> None:
        """Start the thread."""
        self.known: KnownDevices | None = None
        """Maps phones' serials to states; None while the server does not answer."""
        self._server = server
        self._closing = closing
        threading.Thread(target=self._follow, name="device-tracker", daemon=True).start()

    def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                for known in track_devices(self._server, _LOOK_S):
                    if self._closing.is_set():
                        return
                    self.known = self.known if known is None else known
            except DeviceError as error:
                log.info("%s", error)
            self.known = None
            self._closing.wait(_LOOK_S)


def track_devices(server: AdbServer, deadline_s: float = 5.0) -> Generator[KnownDevices | None]:
    """Yield the phones that the server knows, now and after each change.

    Yields None after `deadline_s` without a change, so that the caller can check other things.
    Closing the generator ends the connection.
    """
    try:
        with server.open_socket(Deadline(deadline_s)) as link:
            link.request("host:track-devices")
            while True:
                if not link.wait(deadline_s):
                    yield None
                    continue
                link.deadline = Deadline(deadline_s)
                lines = link.read_block().splitlines()
                yield dict(line.split("\t", 1) for line in lines if "\t" in line)
    except (OSError, AdbRefused) as error:
        raise to_device_error(error, "adb server, host:track-devices", deadline_s) from error
