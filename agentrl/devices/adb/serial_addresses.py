"""Addresses of phones: which serials are one, and which of them are refused."""

import ipaddress
import socket
from collections.abc import Collection

from agentrl.devices.adb.adb_socket import Deadline, device_error, within
from agentrl.errors import ConfigError


def is_network_serial(serial: str) -> bool:
    """Whether a serial is `host:port`, which the server has to be told to connect to."""
    host, _, port = serial.rpartition(":")
    return bool(host) and port.isdigit()


def check_address(
    serial: str, deadline: Deadline | None = None, *, public: Collection[str] = ()
) -> None:
    """Refuse phones on public addresses: adb over TCP is not encrypted, often not even locked.

    Args:
        serial: `host:port`.
        deadline: of looking the host up; a name server may be silent for minutes.
        public: serials that may be on one, because their user has named them.

    Raises:
        ConfigError: the address is public, or does not exist.
        DeviceTimeout: it cannot be looked up in time.
    """
    deadline = deadline or Deadline(10.0)
    host = serial.rpartition(":")[0].strip("[]")
    try:
        entries = within(deadline, lambda: socket.getaddrinfo(host, None))
    except TimeoutError as error:
        raise device_error(error, f"{serial}: looking {host!r} up", deadline.seconds) from error
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{serial}: there is no host {host!r}: {error}") from error
    found = {str(entry[4][0]) for entry in entries}
    reachable = sorted(a for a in found if ipaddress.ip_address(a.partition("%")[0]).is_global)
    if reachable and serial not in public:
        raise ConfigError(
            f"{serial} is on a public address ({reachable[0]}), where anybody can reach the phone "
            "without a password. Use a tunnel: ssh -L 5600:localhost:5555 HOST, and "
            "127.0.0.1:5600; or, if you must, name it in devices.public_addresses "
            "(by hand: agentrl devices connect --public)"
        )
