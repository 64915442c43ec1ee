"""A minimal browser for a phone: it requests a page and extracts its title."""

import asyncio
import re
from urllib.parse import urlsplit

from agentrl.virtual_phone.system.network import PhoneNetwork

_DEADLINE_S = 5.0
_LARGEST_PAGE = 1 << 20
_HOSTS = ("127.0.0.1", "localhost")
_TITLE = re.compile(rb"<title>([^<]{0,200})", re.IGNORECASE)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class PageUnreachable(Exception):
    """The page cannot be loaded; the message says why."""


async def fetch(network: PhoneNetwork, url: str) -> tuple[int, bytes]:
    """Load a page from a port of the phone, for example a reversed one.

    Returns:
        Status and body.

    Raises:
        Unreachable: nothing listens there, or the response is not HTTP.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise PageUnreachable(f"invalid URL: {error}") from error
    channel = network.connect(f"tcp:{port}") if host in _HOSTS else None
    if channel is None:
        raise PageUnreachable(f"Failed to connect to {host} port {port}: Connection refused")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    channel.write(request.encode("ascii", "replace"))
    answer = b""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while (chunk := await channel.read()) and len(answer) < _LARGEST_PAGE:
                answer += chunk
    except TimeoutError as error:
        raise PageUnreachable(f"no response within {_DEADLINE_S:g} s") from error
    finally:
        channel.finish()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise PageUnreachable("Empty reply from server")
    return int(status[1]), body


async def fetch_title(network: PhoneNetwork, url: str) -> str:
    """Status and title of a page, or the reason why it cannot be loaded."""
    try:
        status, body = await fetch(network, url)
    except PageUnreachable as error:
        return str(error)
    title = _TITLE.search(body)
    return f"{status} {title[1].decode('utf-8', 'replace').strip()}" if title else str(status)
