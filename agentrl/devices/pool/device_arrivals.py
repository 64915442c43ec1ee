"""Follows the phones that the adb server lists, for who keeps them."""

import logging
import threading

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.device_tracking import Known, track
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

_LOOK_S = 0.5


class Arrivals:
    """The latest list, kept up by a thread."""

    def __init__(self, server: AdbServer, closing: threading.Event) -> None:
        """Begin to follow.

        Args:
            server: running, or to be.
            closing: ends the thread once it is set.
        """
        self.known: Known | None = None
        """State of every phone by serial; None where the server does not say."""
        self._server = server
        self._closing = closing
        threading.Thread(target=self._follow, name="arrivals", daemon=True).start()

    def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                for known in track(self._server, _LOOK_S):
                    if self._closing.is_set():
                        return
                    self.known = self.known if known is None else known
            except DeviceError as error:
                log.info("%s", error)
            self.known = None
            self._closing.wait(_LOOK_S)
