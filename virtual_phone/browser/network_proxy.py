"""The HTTP proxy of a phone's browser: it reaches the phone's own ports and allowed hosts only."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from virtual_phone.system.byte_channels import Buffer, Channel, relay
from virtual_phone.system.loopback_http_client import LOOPBACK_HOSTS
from virtual_phone.system.phone_network import PhoneNetwork

_MAX_HEAD = 1 << 16
_DEADLINE_S = 10.0
"""Time limit for the head of a request and for a connection, in seconds."""


class StreamChannel:
    """A TCP connection of this machine as a channel of the phone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Return the next chunk; empty at the end or after an error."""
        with suppress(OSError):
            return await self._reader.read(1 << 16)
        return b""

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self._writer.drain()

    def close(self) -> None:
        """Close both directions."""
        self._writer.close()


class NetworkProxy:
    """An HTTP proxy on the loopback of this machine.

    Chromium sends it all requests, also those for `localhost`, which stands for the phone.

    Args:
        network: the phone's own ports, such as reversed ones.
        hosts: patterns of other hosts, such as `*.example.org`, that may be reached through this
            machine's network. Only a name without `*` may lead to a private address.
    """

    def __init__(self, network: PhoneNetwork, hosts: Sequence[str]) -> None:
        self._network, self._hosts = network, tuple(host.lower() for host in hosts)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listen on a free port; return the proxy's URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_HEAD)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._relay(reader, StreamChannel(reader, writer))
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError,
                asyncio.LimitOverrunError):  # fmt: skip
            pass  # the browser reports that the page cannot be loaded
        finally:
            self._connections.discard(task)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, client: StreamChannel) -> None:
        async with asyncio.timeout(_DEADLINE_S):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        is_tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        host, port = (parts.hostname or "").lower(), parts.port or 80
        goal = await self._connect(host, port)
        if goal is None:
            return  # for the page, an error of the network; any answer would look like a host's
        if is_tunnel:
            client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.partition("://")[2].partition("/")[2]
            goal.write(f"{method} {path} {version}\r\n".encode("latin-1") + _closing(head))
        await relay(client, goal)

    async def _connect(self, host: str, port: int) -> Channel | None:
        if host in LOOPBACK_HOSTS:
            return self._network.connect(f"tcp:{port}")
        if not any(fnmatchcase(host, pattern) for pattern in self._hosts):
            return None
        async with asyncio.timeout(_DEADLINE_S):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            address = str(found[0][4][0])
            # A name that a pattern allows may belong to a stranger, and lead to this computer.
            if host not in self._hosts and not _is_public(address):
                return None
            return StreamChannel(*await asyncio.open_connection(address, port))


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_global


def _closing(head: bytes) -> bytes:
    """Return a request's headers, asking for a connection that ends with the response.

    The next request of a connection may have another host, which would have to be checked again.
    """
    lines = head.split(b"\r\n")[1:-2]
    kept = [
        line
        for line in lines
        if line.partition(b":")[0].strip().lower() not in (b"connection", b"proxy-connection")
    ]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])
