"""Removes the phones of a process from the adb server's list once that process has ended.

`host_process` runs this file as a script of its own process, because a phone that disappears stays
in the list for a minute: whatever kills the phones, as Ray does with the children of a worker that
exits, cannot keep them from being removed. Standard input ends with the process of the phones.
"""

import contextlib
import socket
import sys

_ADB_S = 2.0


def main(host: str, adb_port: str, *ports: str) -> None:
    """Wait for the end of standard input, and ask the adb server to forget the phones' ports."""
    sys.stdin.read()
    with contextlib.suppress(OSError, UnicodeError):  # it may be gone, or have no valid address
        for port in ports:
            request = f"host:disconnect:127.0.0.1:{port}".encode()
            with socket.create_connection((host, int(adb_port)), timeout=_ADB_S) as link:
                link.sendall(b"%04x%s" % (len(request), request))
                link.recv(4)


if __name__ == "__main__":
    main(*sys.argv[1:])
