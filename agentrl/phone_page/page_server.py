"""Serves pages to phones, only on loopback, each with a secret token, and to no other origin.

The server runs in a thread of the rollout process. The apps are there, so the game's state is read
without another hop, and the server ends with the process, however it ends. A page costs little
more than drawing it, and OpenCV and zlib release the GIL.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from importlib import resources
from typing import Final

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket

from agentrl.cross_origin_requests import MAX_CONNECTIONS, foreign_request
from agentrl.errors import DeviceError, DeviceTimeout
from agentrl.phone_page.page_app import PageApp
from agentrl.phone_page.page_messages import LONGEST
from agentrl.phone_page.page_socket import PageConnection

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_START_S = 10.0
_STOP_S = 5.0
_PING_S = 5.0
"""Interval between WebSocket pings, which the browser answers by itself."""
_PONG_S = 10.0
_HEADERS: Final = {
    # The page may contact only this server, and must not be framed or cached.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer:
    """One server for the pages of many phones.

    The server can be stopped and restarted on the same port; pages then reconnect to their games.
    """

    def __init__(self, *, port: int = 0) -> None:
        """Prepare a server without starting it.

        Args:
            port: port to listen on; 0 picks a free port at the first start and keeps it.
        """
        self.port = port
        self._apps: dict[str, PageApp] = {}
        self._running: _Running | None = None

    def start(self) -> None:
        """Start listening; raise DeviceError if the port is taken."""
        if self._running is None:
            listener = _listen(self.port)
            self.port = listener.getsockname()[1]
            self._running = _Running(_application(self._apps), listener)

    def stop(self) -> None:
        """Drop all connections and stop listening; the state of the apps is kept."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def add(self, app: PageApp) -> None:
        """Start serving an app's page."""
        self._apps[app.token] = app

    def remove(self, app: PageApp) -> None:
        """Stop serving an app's page."""
        self._apps.pop(app.token, None)
        app.drop()

    def url(self, app: PageApp) -> str:
        """Return the page's URL, the same on this machine and at the phone's end of the tunnel."""
        return f"http://localhost:{self.port}/{app.token}"

    def __enter__(self) -> "PageServer":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Running(uvicorn.Server):
    """A uvicorn server in a thread, which is up once the constructor returns."""

    def __init__(self, application: FastAPI, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                ws="websockets-sansio",
                ws_max_size=4 * LONGEST,
                ws_ping_interval=_PING_S,
                ws_ping_timeout=_PONG_S,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                log_level="warning",  # lower levels log URLs, which contain the token
                access_log=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
                server_header=False,
            )
        )
        self._up = threading.Event()
        # A daemon thread, so that a hung page does not keep this process alive.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self.serve(sockets=[listener])),
            name="page server",
            daemon=True,
        )
        self._thread.start()
        if not self._up.wait(_START_S):
            raise DeviceTimeout(f"the page server did not start within {_START_S:g} s")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._up.set()

    def stop(self) -> None:
        self.should_exit = True
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            log.warning("the page server did not stop within %g s", _STOP_S)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    # A restarted server reuses its port, on which old connections may linger.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise DeviceError(f"the page server cannot listen on port {port}: {error}") from error
    return listener


def _application(apps: dict[str, PageApp]) -> FastAPI:
    application = FastAPI(openapi_url=None)
    files = resources.files("agentrl.phone_page") / "static"
    html, script = ((files / name).read_bytes() for name in ("page.html", "page.js"))

    @application.get("/page.js")
    async def send_script(request: Request) -> Response:
        return _answer(request.headers, script, "text/javascript")

    @application.get("/{token}")
    async def send_page(request: Request, token: str) -> Response:
        if token not in apps:
            _refuse(f"no page has the token {token[:40]!r}")
            return Response("No such page.", 404, _HEADERS, "text/plain")
        return _answer(request.headers, html, "text/html; charset=utf-8")

    @application.websocket("/{token}/socket")
    async def serve_page(socket: WebSocket, token: str) -> None:
        app = apps.get(token)
        if app is None:
            _refuse(f"no page has the token {token[:40]!r}")
        # The same-origin policy does not cover WebSockets, but browsers send their origin.
        elif _is_own(socket.headers, needs_origin=True):
            await PageConnection(app, socket).serve()
            return
        await socket.close()

    return application


def _answer(headers: Mapping[str, str], body: bytes, media_type: str) -> Response:
    if not _is_own(headers, needs_origin=False):
        return Response("Forbidden origin.", 403, _HEADERS, "text/plain")
    return Response(body, 200, _HEADERS, media_type)


def _is_own(headers: Mapping[str, str], *, needs_origin: bool) -> bool:
    """Return whether a request comes from one of our pages.

    A phone reaches this server through a tunnel, so its Host header is always loopback.
    """
    why = foreign_request(headers, _LOOPBACK, needs_origin=needs_origin)
    if why is not None:
        _refuse(why)
    return why is None


def _refuse(why: str) -> None:
    log.warning("refused a page request: %s", why)
