"""Run the viewer until it is told to end."""

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.viewer.app import application
from agentrl.viewer.guard import Guard


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8200,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the pages of a run.

    Args:
        run: its folder; it may still be growing.
        host: the address to listen on. Beyond loopback every reader needs the token that is part
            of the address told.
        port: 0 takes a free one.
        ready: told of the address once it listens.

    Raises:
        ConfigError: there is no such run, or the port is taken.
    """
    recorded = replay.open(run)
    recorded.episodes()
    guard = Guard(host)
    listener = _listen(host, port)
    pages = application(recorded, guard)
    config = uvicorn.Config(
        pages, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=1, lifespan="off",
    )  # fmt: skip
    try:
        _Announcing(config, lambda: ready(_address(listener, guard))).run(sockets=[listener])
    finally:
        pages.state.wall.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"port={port}, host={host}: cannot listen there: {error}") from error
    return listener


def _address(listener: socket.socket, guard: Guard) -> str:
    host, port, *_ = listener.getsockname()
    shown = f"[{host}]" if ":" in host else host
    # Behind the # it stays in the browser; beyond loopback it must come to the server once.
    return f"http://{shown}:{port}/{'#' if guard.is_loopback else '?'}token={guard.token}"


class _Announcing(uvicorn.Server):
    """Tells that it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            self._ready()
