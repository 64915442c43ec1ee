"""Remove a process's phones from the adb server's list once that process has ended.

A phone that disappears stays in the list for a minute. `phone_host_process` runs this file as a
script in a separate process, so that the phones are removed even if their process is killed, as Ray
does with the children of an exiting worker. Standard input ends when the phones' process ends.
"""

import contextlib
import socket
import sys

_ADB_S = 2.0


def main(host: str, adb_port: str, *ports: str) -> None:
    """Wait for the end of standard input, then ask the adb server to forget the phones' ports."""
    sys.stdin.read()
    with contextlib.suppress(OSError, UnicodeError):  # server gone or address invalid
        for port in ports:
            request = f"host:disconnect:127.0.0.1:{port}".encode()
            with socket.create_connection((host, int(adb_port)), timeout=_ADB_S) as link:
                link.sendall(b"%04x%s" % (len(request), request))
                link.recv(4)


if __name__ == "__main__":
    main(*sys.argv[1:])
