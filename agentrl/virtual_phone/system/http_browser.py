"""A phone's browser, as far as it goes: it asks for a page and shows its title."""

import asyncio
import re
from urllib.parse import urlsplit

from agentrl.virtual_phone.system.network import Network

_DEADLINE_S = 5.0
_LARGEST_PAGE = 1 << 20
_HOSTS = ("127.0.0.1", "localhost")
_TITLE = re.compile(rb"<title>([^<]{0,200})", re.IGNORECASE)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Unreachable(Exception):
    """A page cannot be had; the message says why."""


async def fetch(network: Network, url: str) -> tuple[int, bytes]:
    """Get a page from a port of the phone, such as one that was reversed.

    Returns:
        Status and body.

    Raises:
        Unreachable: nobody listens there, or what comes is no page.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise Unreachable(f"no address: {error}") from error
    other = network.connect(f"tcp:{port}") if host in _HOSTS else None
    if other is None:
        raise Unreachable(f"Failed to connect to {host} port {port}: Connection refused")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    asked = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    other.write(asked.encode("ascii", "replace"))
    answer = b""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while (chunk := await other.read()) and len(answer) < _LARGEST_PAGE:
                answer += chunk
    except TimeoutError as error:
        raise Unreachable(f"no answer within {_DEADLINE_S:g} s") from error
    finally:
        other.finish()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise Unreachable("Empty reply from server")
    return int(status[1]), body


async def fetch_title(network: Network, url: str) -> str:
    """The title of a page, or why there is none."""
    try:
        status, body = await fetch(network, url)
    except Unreachable as error:
        return str(error)
    title = _TITLE.search(body)
    return f"{status} {title[1].decode('utf-8', 'replace').strip()}" if title else str(status)
