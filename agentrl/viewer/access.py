"""Who may ask the viewer, and what a page of it may do."""

import hmac
import ipaddress
import logging
import re
import secrets
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

HEADERS: Final = {
    # Nothing but this server is asked, nobody frames the page, and no words become a program.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TOKEN_HEADER = "x-agentrl-token"
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
"""A name or an address, an IPv6 one in brackets, and a port."""
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard:
    """Knows the names of this server and its token.

    Args:
        host: the address that it listens on.
        port: likewise.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.is_loopback = is_loopback(host)
        self._names = _OWN_NAMES | {f"[{host}]" if ":" in host else host}
        # Browsers send cookies to every port of a host: two servers must not share one.
        self.cookie = f"agentrl-{port}"

    def refusal(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
        """Why a request is not answered; None for one that is.

        The host's name tells a name of somebody else's that leads here (DNS rebinding), the origin
        a page of somebody else's in the same browser.
        """
        host = headers.get("host", "")
        if self.is_loopback and _name_of(host) not in self._names:
            return f"this is no name of this server: {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("//")[2] != host:
            return f"asked by a page of another server: {origin[:80]!r}"
        if not self.is_loopback and not self.knows(cookies.get(self.cookie, "")):
            return "the token is missing; open the address that the server has printed"
        return None

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(token.encode(), self.token.encode())


def _name_of(host: str) -> str | None:
    """Without the port; None of what is no host."""
    found = _HOST.fullmatch(host)
    return found and found[1]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
