"""The DevTools protocol of a phone's page, at the address of Chrome on Android.

`adb forward tcp:9222 localabstract:chrome_devtools_remote` makes it available to any client of the
protocol. Each phone lists its own page only, although all phones share one Chromium. Clients are
trusted: the protocol of a page can reach other pages and the files of this computer.
"""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

from virtual_phone.browser.network_proxy import StreamChannel
from virtual_phone.system.byte_channels import Channel, connected, relay
from virtual_phone.system.phone_network import PhoneNetwork, PortListener

ADDRESS = "localabstract:chrome_devtools_remote"
_LISTS = ("/json", "/json/", "/json/list", "/json/version")
_HOST = re.compile(rb"^host: *(\S+)", re.IGNORECASE | re.MULTILINE)
_MAX_HEAD = 1 << 16
_DEADLINE_S = 10.0


@dataclass(slots=True, kw_only=True, frozen=True)
class DevToolsTarget:
    """A page of a Chromium."""

    port: int
    """Port of Chromium's DevTools protocol on the loopback of this machine."""
    id: str


class DevToolsSocket:
    """Listens on the phone until it is closed.

    Args:
        network: the phone's own ports.
        target: returns the page that may be inspected; None before it is open.
    """

    def __init__(self, network: PhoneNetwork, target: Callable[[], DevToolsTarget | None]) -> None:
        self._network, self._target = network, target
        self._connections: set[asyncio.Task[None]] = set()
        if network.find(ADDRESS) is None:
            network.listen(ADDRESS, PortListener(owner=self, accept=self._accept))

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._network.close_all(self)
        for connection in self._connections:
            connection.cancel()

    def _accept(self) -> Channel:
        client, server = connected()
        task = asyncio.get_running_loop().create_task(self._serve(server))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        return client

    async def _serve(self, client: Channel) -> None:
        try:
            with suppress(OSError, ValueError, KeyError, HTTPException):
                await self._answer(client)
        finally:
            client.close()

    async def _answer(self, client: Channel) -> None:
        request = b""
        async with asyncio.timeout(_DEADLINE_S):
            while b"\r\n\r\n" not in request and len(request) < _MAX_HEAD:
                if not (data := await client.read()):
                    return
                request += data
        path = (request.split(b" ", 2) + [b""] * 2)[1].decode("latin-1")
        target, is_upgrade = self._target(), b"upgrade: websocket" in request.lower()
        if target is not None and is_upgrade and path == f"/devtools/page/{target.id}":
            browser = await _connect(target)
            browser.write(request)
            await relay(client, browser)
        elif target is not None and path.partition("?")[0] in _LISTS:
            await _list(client, request, target)
        else:
            await _reply(client, b"404 Not Found", b"")


async def _list(client: Channel, request: bytes, target: DevToolsTarget) -> None:
    """Answer with Chromium's list of pages, without those of other phones."""
    path = request.split(b" ", 2)[1].decode("latin-1")
    host = _HOST.search(request)
    # The addresses in the list are those under which the client reaches the phone.
    headers = {"Host": host[1].decode("latin-1")} if host is not None else {}
    asked = Request(f"http://127.0.0.1:{target.port}{path}", headers=headers)

    def read() -> bytes:
        # Without the proxies of this machine.
        with build_opener(ProxyHandler({})).open(asked, timeout=_DEADLINE_S) as answer:
            content: bytes = answer.read()
        return content

    found = json.loads(await asyncio.to_thread(read))
    if isinstance(found, list):
        found = [page for page in found if page["id"] == target.id]
    else:
        found.pop("webSocketDebuggerUrl", None)  # it controls the pages of all phones
    await _reply(client, b"200 OK", json.dumps(found, indent=1).encode())


async def _connect(target: DevToolsTarget) -> StreamChannel:
    return StreamChannel(*await asyncio.open_connection("127.0.0.1", target.port))


async def _reply(client: Channel, status: bytes, body: bytes) -> None:
    head = b"Content-Type: application/json; charset=UTF-8\r\nConnection: close"
    size = b"Content-Length: %d" % len(body)
    client.write(b"HTTP/1.1 %s\r\n%s\r\n%s\r\n\r\n%s" % (status, head, size, body))
    await client.drain()
