"""Run the viewer: until it is told to end, or beside something else."""

import errno
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.replay import Run
from agentrl.viewer.access import Guard
from agentrl.viewer.live_episode import Stage
from agentrl.viewer.server_app import application

_START_S = 30.0
_STOP_S = 10.0


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8200,
    page: str = "",
    other: str | Path | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the pages of a run until the process is told to end, by Ctrl-C or SIGTERM.

    Args:
        run: its folder; it may still be growing.
        host: the address to listen on. Beyond loopback every reader needs the token that is part
            of the address told.
        port: 0 takes a free one.
        page: whose address is told, such as `episodes/ID`; the first one if not said.
        other: another run, whose plays can be compared with this one's.
        ready: told of the address once it listens.

    Raises:
        ConfigError: there is no such run, or the port is taken.
        SystemExit: after SIGTERM, with 143.
    """
    recorded = replay.open(run)
    recorded.episodes()
    beside = None if other is None else replay.open(other)
    signal.signal(signal.SIGTERM, _end)
    serving = Serving(recorded, host=host, port=port, other=beside)
    try:
        ready(serving.address(page))
        serving.wait()
    except KeyboardInterrupt:
        pass
    finally:
        serving.close()


def _end(number: int, _: object) -> None:
    """As a shell tells of it; what is open is closed on the way."""
    raise SystemExit(128 + number)


class Serving:
    """The pages of a run, served from a thread.

    Args:
        run: the recorded run.
        host: the address to listen on.
        port: 0 takes a free one.
        stage: an episode that is played on a page; None for none.
        other: a run whose plays can be compared with those of `run`; None for none.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(
        self,
        run: Run,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        stage: Stage | None = None,
        other: Run | None = None,
    ) -> None:
        self._listener = _listen(host, port)
        self.guard = Guard(*self._listener.getsockname()[:2])
        self._pages = application(run, self.guard, stage, other)
        config = uvicorn.Config(
            self._pages, log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=3, lifespan="off",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        # No daemon, and so its workers are none: the process waits for them to come out of OpenCV,
        # which aborts it where its threads are torn away.
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="viewer"
        )
        self._thread.start()
        try:
            self._wait_for_start()
        except BaseException:  # Ctrl-C, too: the process would wait for the thread for ever
            self._server.should_exit = True
            raise

    def _wait_for_start(self) -> None:
        ends = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > ends:
                raise ConfigError(f"{self.url}: the pages do not come up")
            self._thread.join(0.02)

    @property
    def url(self) -> str:
        """Without the token."""
        host, port, *_ = self._listener.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def address(self, page: str = "") -> str:
        """Of a page, with the token."""
        # Behind the # it stays in the browser; beyond loopback it must come to the server once.
        sign = "#" if self.guard.is_loopback else "?"
        return f"{self.url}/{page}{sign}token={self.guard.token}"

    def wait(self) -> None:
        """Until it is closed, or the process is interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """End; may be called twice."""
        self._pages.state.closing.set()  # streams end, which would hold the server up
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._pages.state.search.close()
        self._pages.state.wall.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, TypeError, ValueError) as error:  # the last two of what is no name
        listener.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = ". Something is served there already; --port 0 takes a free one" if taken else ""
        raise ConfigError(
            f"port={port}, host={host}: cannot listen there: {error}{hint}"
        ) from error
    return listener
