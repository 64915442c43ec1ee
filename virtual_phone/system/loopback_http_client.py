"""Load web pages from ports of the phone over HTTP, as its browser and curl do."""

import asyncio
import re
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from virtual_phone.system.byte_channels import Channel
from virtual_phone.system.phone_network import PhoneNetwork

_DEADLINE_S = 5.0
"""Time limit in seconds for loading a page in the browser."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost")
"""Host names that stand for the phone itself."""
_TITLE = re.compile(rb"<title>([^<]{0,200})", re.IGNORECASE)
_LOCATION = re.compile(rb"^location: *(\S+)", re.IGNORECASE | re.MULTILINE)
_MOVED = (301, 302, 303, 307, 308)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class PageUnreachable(Exception):
    """The page cannot be loaded; the message says why."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Request:
    """An HTTP request."""

    url: str
    method: str = "GET"
    num_redirects: int = 0
    """Maximum number of redirects to follow."""
    max_bytes: int = 16 << 20
    """Maximum size of the response."""
    deadline_s: float = 30.0
    """Maximum time without data, in seconds."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Response:
    """An HTTP response."""

    status: int
    head: bytes
    """Status line and headers."""
    body: bytes


async def fetch(network: PhoneNetwork, request: Request) -> Response:
    """Load a page from a port of the phone, such as a reversed port."""
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
        # With HTTP/1.0, the body ends when the connection closes.
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
    """Return a page's status and title, or the reason why it cannot be loaded."""
    try:
        page = await fetch(network, Request(url=url, deadline_s=_DEADLINE_S))
    except PageUnreachable as error:
        return str(error)
    title, status = _TITLE.search(page.body), str(page.status)
    return f"{status} {title[1].decode('utf-8', 'replace').strip()}" if title else status
