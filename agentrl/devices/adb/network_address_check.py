"""Network addresses of phones, and a check that refuses public addresses."""

import ipaddress
import re
import socket
from collections.abc import Collection

from agentrl.devices.adb.adb_socket import to_device_error
from agentrl.devices.adb.deadline import Deadline, run_with_deadline
from agentrl.errors import ConfigError

_MDNS_NAME = re.compile(r"\S.*\._adb(-tls-connect)?\._tcp\.?")


def is_network_serial(serial: str) -> bool:
    """Return whether a serial is `host:port`, to which the adb server connects only on request."""
    host, _, port = serial.rpartition(":")
    return bool(host) and port.isdigit()


def is_mdns_name(serial: str) -> bool:
    """Return whether a serial is a wireless-debugging name, which survives a change of the port.

    For example, `adb-28131FDH2-x7Qa1f._adb-tls-connect._tcp`.
    """
    return _MDNS_NAME.fullmatch(serial) is not None


def check_address(
    serial: str, deadline: Deadline | None = None, *, public: Collection[str] = ()
) -> None:
    """Refuse public addresses, because adb over TCP is unencrypted and often unauthenticated."""
    deadline = deadline or Deadline(10.0)
    host = serial.rpartition(":")[0].strip("[]")
    try:
        # A DNS lookup may hang for minutes.
        entries = run_with_deadline(deadline, lambda: socket.getaddrinfo(host, None))
    except TimeoutError as error:
        raise to_device_error(
            error, f"{serial}: DNS lookup of {host!r}", deadline.seconds
        ) from error
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{serial}: unknown host {host!r}: {error}") from error
    # adb may try any address of a name; an address with a zone (%eth0) is link-local.
    addresses = {str(entry[4][0]) for entry in entries}
    reachable = sorted(a for a in addresses if ipaddress.ip_address(a.partition("%")[0]).is_global)
    if reachable and serial not in public:
        raise ConfigError(
            f"{serial} is on a public address ({reachable[0]}), where anyone can reach the phone "
            "without a password. Use a tunnel (ssh -L 5600:localhost:5555 HOST, then connect to "
            "127.0.0.1:5600) or, if you must, list it in devices.public_addresses "
            "(on the command line: agentrl devices connect --public)"
        )
