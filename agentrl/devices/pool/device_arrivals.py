"""Keeps the adb server's list of phones up to date in a thread."""

import logging
import threading

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.device_tracking import KnownDevices, track_devices
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

_LOOK_S = 0.5


class DeviceArrivals:
    """The latest list of phones, updated by a thread."""

    def __init__(self, server: AdbServer, closing: threading.Event) -> None:
        """Start the thread.

        Args:
            server: need not be running yet.
            closing: ends the thread once it is set.
        """
        self.known: KnownDevices | None = None
        """State of every phone by serial; None while the server does not answer."""
        self._server = server
        self._closing = closing
        threading.Thread(target=self._follow, name="arrivals", daemon=True).start()

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
