"""A phone's port and the connections to it."""

import asyncio
import math
import socket
from collections.abc import Callable, Sequence

from virtual_phone.protocol import adb_services
from virtual_phone.protocol.adb_auth import AdbAuthenticator, TrustedKeys
from virtual_phone.protocol.device_connection import DeviceConnection
from virtual_phone.virtual_phone import VirtualPhone

_LOOPBACK = "127.0.0.1"
_EMULATOR_PORTS = range(5555, 5586)
"""The adb server adopts any listener here as an emulator: the phone would appear twice."""
_MAX_CONNECTIONS = 64
_RETRY_S = 0.2


class PhoneServer:
    """Listening socket of one phone, and the connections to it."""

    def __init__(
        self,
        phone: VirtualPhone,
        *,
        auth: bool = False,
        keys: Sequence[str] | None = None,
        port: int = 0,
    ) -> None:
        """Listen on a port of the loopback interface.

        Args:
            phone: the phone to serve.
            auth: whether clients have to authenticate.
            keys: trusted public keys; None accepts every key.
            port: port to listen on; 0 chooses a free port.
        """
        self.phone = phone
        self.on_restart: Callable[[], None] = lambda: None
        """Called when the phone is back after a reboot."""
        self._keys = TrustedKeys(phone.files, keys) if auth else None
        self._connections: dict[DeviceConnection, None] = {}
        self._loop = asyncio.get_running_loop()
        self._return: asyncio.TimerHandle | None = None
        self._restarts = False
        self._listener = _listen(port)
        self.port: int = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)
        phone.on_power = self._on_power

    def close(self) -> None:
        """Become unreachable: drop all connections and stop listening."""
        if self._return is not None:
            self._return.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the client has left, or no file descriptors are available
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            # Drop a client that never completed the handshake, but never a client that did: the
            # oldest connection is the adb server.
            silent = next((c for c in self._connections if not c.is_online), None)
            if silent is None:
                sock.close()
                return
            silent.close()
        connection = DeviceConnection(
            sock,
            adb_services.banner(self.phone),
            lambda stream, name: adb_services.open_service(self.phone, stream, name),
            self._on_lost,
            None if self._keys is None else AdbAuthenticator(self._keys),
        )
        self._connections[connection] = None

    def _on_lost(self, connection: DeviceConnection) -> None:
        self._connections.pop(connection, None)
        self.phone.network.close_all(connection)

    def _on_power(self, what: str, seconds: float) -> None:
        """Stop listening for some seconds (`offline`); for `reboot`, also restart the phone."""
        self.close()
        self._restarts |= what == "reboot"
        if seconds < math.inf:
            self._return = self._loop.call_later(seconds, self._come_back)

    def _come_back(self) -> None:
        try:
            self._listener = _listen(self.port)
        except OSError:  # another process has taken the port in the meantime
            self._return = self._loop.call_later(_RETRY_S, self._come_back)
            return
        if self._restarts:
            self._restarts = False
            self.phone.restart()
            self.on_restart()
        self._loop.add_reader(self._listener, self._accept)


def _listen(port: int) -> socket.socket:
    while True:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            listener.bind((_LOOPBACK, port))
            if listener.getsockname()[1] not in _EMULATOR_PORTS:
                listener.listen()
                listener.setblocking(False)
                return listener
        except OSError:
            listener.close()
            raise
        listener.close()
