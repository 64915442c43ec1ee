"""First check of every request to a server, which refuses foreign host names and pages.

`agentrl serve-env --program` prints this file as part of the environment server, so it uses only
the standard library of Python 3.9.
"""

import ipaddress
import re
from typing import Protocol

MAX_CONNECTIONS = 512
"""Maximum number of open connections of an asyncio server; further requests get a 503 response."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
"""A host name or address (IPv6 in brackets), and an optional port."""
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Headers(Protocol):
    """Interface of case-insensitive request headers."""

    def get(self, name: str, /) -> "str | None":
        """Return the value of a header; None if it is missing."""


def foreign_request(
    headers: Headers, listens_on: str, *, needs_origin: bool = False
) -> "str | None":
    """Return why to refuse a request that another web page may have caused; None to accept it.

    On loopback, the host name reveals a foreign name that resolves to this machine (DNS rebinding).
    Other servers can have many names, so they require a token instead. The origin reveals a foreign
    page in the same browser; other programs do not send an origin.

    Args:
        headers: headers of the request.
        listens_on: the address that the server listens on.
        needs_origin: True if only this server's pages may send the request.
    """
    host, origin = headers.get("host") or "", headers.get("origin")
    if is_loopback(listens_on):
        name = _HOST.fullmatch(host.lower())
        if name is None or _canonical(name[1]) not in _OWN_NAMES | {_canonical(listens_on)}:
            return (
                f"not a name of this server: {host[:80]!r}; it listens on {listens_on}, so use "
                "localhost, or start it with a different --host"
            )
    if origin is None and not needs_origin:
        return None
    if origin is None or origin.partition("//")[2] != host:
        return (
            f"the request comes from a page of another server: {str(origin)[:80]!r}, not "
            f"{host[:80]!r}; behind a proxy, forward the Host header, and start this server with a "
            "--host other than loopback"
        )
    return None


def _canonical(name: str) -> str:
    """Return the canonical spelling of a host's name or address."""
    name = name[1:-1] if name.startswith("[") else name.lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
