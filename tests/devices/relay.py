"""A TCP relay in front of a phone: on a port of choice, or as slow as a bad link."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

_CHUNK = 1 << 14


@contextlib.contextmanager
def relayed(to_port: int, *, port: int = 0, bytes_per_s: float = float("inf")) -> Iterator[int]:
    """Relay connections to a port of this machine; yields the port that the relay listens on.

    Args:
        to_port: port of the phone.
        port: to listen on; 0 for a free one.
        bytes_per_s: how fast the phone's data passes.
    """
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket, rate: float) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(len(data) / rate)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                phone = socket.create_connection(("127.0.0.1", to_port))
                sockets.extend((client, phone))
                for ends in ((client, phone, float("inf")), (phone, client, bytes_per_s)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    for one in sockets:
        one.close()
