"""Phones that come and go, as the adb server tells."""

from collections.abc import Generator

from agentrl.devices.adb.adb_server import AdbServer
from agentrl.devices.adb.adb_socket import Deadline, Refused, device_error

Known = dict[str, str]
"""State of every phone by serial; `device` is ready."""


def track(server: AdbServer, deadline_s: float = 5.0) -> Generator[Known | None]:
    """The phones that the server knows, again whenever something changes.

    Closing the generator ends the connection.

    Args:
        server: a running adb server.
        deadline_s: None is given where nothing has changed for so long, so that who waits can look
            at something else.

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
    except (OSError, Refused) as error:
        raise device_error(error, "adb server, host:track-devices", deadline_s) from error
