"""The ports inside one phone: listeners and connections.

None of them is a port of this machine: a phone's port 8080 is its own, as on a real phone.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from virtual_phone.system.byte_channels import Channel

_ADDRESS = re.compile(r"tcp:(\d{1,5})|(?:localabstract|localreserved|localfilesystem):[!-~]{1,200}")
_FREE_PORTS = range(40_000, 50_000)
_MAX_LISTENERS = 200
_DEADLINE_S = 5.0
"""Time limit for loading a page of the browser, in seconds."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost")
"""Names of the phone itself."""
_TITLE = re.compile(rb"<title>([^<]{0,200})", re.IGNORECASE)
_LOCATION = re.compile(rb"^location: *(\S+)", re.IGNORECASE | re.MULTILINE)
_MOVED = (301, 302, 303, 307, 308)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


@dataclass(slots=True, kw_only=True, frozen=True)
class PortListener:
    """A listening socket on the phone."""

    owner: object
    """Owner of the socket; the socket closes with it."""
    accept: Callable[[], Channel]
    """Returns the client's end of a new connection."""
    goal: str = ""
    """Address on the computer that a reversed port leads to."""


class PhoneNetwork:
    """The ports of one phone."""

    def __init__(self) -> None:
        self._listeners: dict[str, PortListener] = {}

    def listen(self, address: str, listener: PortListener) -> str:
        """Listen at an address such as `tcp:8080` or `localabstract:name`.

        Returns:
            The address; with a free port if `tcp:0` was requested.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[1] or 1) > 65_535:
            raise OSError(22, f"bad address: {address[:100]}")
        if address == "tcp:0":
            address = next(f"tcp:{p}" for p in _FREE_PORTS if f"tcp:{p}" not in self._listeners)
        if address in self._listeners or len(self._listeners) >= _MAX_LISTENERS:
            raise OSError(98, "Address already in use")
        self._listeners[address] = listener
        return address

    def find(self, address: str) -> PortListener | None:
        """The listener at an address, or None."""
        return self._listeners.get(address)

    def close(self, address: str) -> None:
        """Stop listening at an address."""
        self._listeners.pop(address, None)

    def close_all(self, owner: object) -> None:
        """Close all listeners of an owner."""
        for address in [a for a, listener in self._listeners.items() if listener.owner is owner]:
            del self._listeners[address]

    def reversed(self) -> list[tuple[str, str]]:
        """The reversed ports and where they lead."""
        return sorted((address, one.goal) for address, one in self._listeners.items() if one.goal)

    def connect(self, address: str) -> Channel | None:
        """The client's end of a new connection; None if nothing listens."""
        listener = self._listeners.get(address)
        return None if listener is None else listener.accept()


class PageUnreachable(Exception):
    """The page cannot be loaded; the message says why."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Request:
    """An HTTP request."""

    url: str
    method: str = "GET"
    num_redirects: int = 0
    """Redirections to follow."""
    max_bytes: int = 16 << 20
    """Longest response."""
    deadline_s: float = 30.0
    """Longest time without data."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Response:
    """An HTTP response."""

    status: int
    head: bytes
    """Status line and headers."""
    body: bytes


async def fetch(network: PhoneNetwork, request: Request) -> Response:
    """Load a page from a port of the phone, for example a reversed one."""
    url = request.url
    for _ in range(request.num_redirects + 1):
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise PageUnreachable(f"invalid URL: {error}") from error
        channel = network.connect(f"tcp:{port}") if host in LOOPBACK_HOSTS else None
        if channel is None:
            raise PageUnreachable(f"Failed to connect to {host} port {port}: Connection refused")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{request.method} {path} HTTP/1.0", f"Host: {host}:{port}", "Connection: close"]
        # HTTP/1.0, so that the end of the body is the end of the connection.
        channel.write("\r\n".join([*lines, "", ""]).encode("ascii", "replace"))
        response = await _read_response(channel, request)
        moved = _LOCATION.search(response.head)
        if response.status not in _MOVED or moved is None:
            break
        url = urljoin(url, moved[1].decode("ascii", "replace"))
    return response


async def _read_response(channel: Channel, request: Request) -> Response:
    answer = bytearray()
    try:
        while chunk := await asyncio.wait_for(channel.read(), request.deadline_s):
            answer += chunk
            if len(answer) > request.max_bytes:
                raise PageUnreachable(f"the response exceeds {request.max_bytes} bytes")
    except TimeoutError as error:
        raise PageUnreachable(f"no response within {request.deadline_s:g} s") from error
    finally:
        channel.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise PageUnreachable("Empty reply from server")
    return Response(status=int(status[1]), head=head, body=body)


async def fetch_title(network: PhoneNetwork, url: str) -> str:
    """Status and title of a page, or the reason why it cannot be loaded."""
    try:
        page = await fetch(network, Request(url=url, deadline_s=_DEADLINE_S))
    except PageUnreachable as error:
        return str(error)
    title, status = _TITLE.search(page.body), str(page.status)
    return f"{status} {title[1].decode('utf-8', 'replace').strip()}" if title else status
