"""Follows the adb server's list of phones as they come and go."""

from collections.abc import Generator

from agentrl.devices.adb.adb_server import AdbServer
from agentrl.devices.adb.adb_socket import AdbRefused, Deadline, to_device_error

KnownDevices = dict[str, str]
"""State of every phone by serial; `device` means ready."""


def track_devices(server: AdbServer, deadline_s: float = 5.0) -> Generator[KnownDevices | None]:
    """Yields the phones that the server knows, now and after each change.

    Closing the generator ends the connection.

    Args:
        server: a running adb server.
        deadline_s: yields None when nothing changed for this long, so that the caller can check
            other things.

    Raises:
        DeviceError: the server is gone, or refuses.
    """
    try:
        with server.link(Deadline(deadline_s)) as link:
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
