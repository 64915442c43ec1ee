"""Run the web server for the viewer, or for an episode played in the browser."""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from agentrl import replay
from agentrl.config import Config
from agentrl.cross_origin_requests import MAX_CONNECTIONS
from agentrl.errors import AgentRLError, ConfigError
from agentrl.files import path_of
from agentrl.replay import Run
from agentrl.runs.run_discovery import is_folder_of_runs
from agentrl.training.evaluation.interactive_play import HUMAN, play, training_command
from agentrl.training.inference.background_model import ModelThread
from agentrl.training.inference.chat_history import ChatHistory
from agentrl.types import ScoredEpisode
from agentrl.viewer.access_control import AccessGuard
from agentrl.viewer.background_reading import BackgroundReading, StillReading
from agentrl.viewer.browser_play import BrowserPlay
from agentrl.viewer.chat_app import LiveChat, chat_application
from agentrl.viewer.run_app import run_application
from agentrl.viewer.run_list_app import run_list_application
from agentrl.viewer.runs_folder import AllRuns

DEFAULT_PORT = 8200
_NEXT_PORTS = 20
_START_S = 30.0
_STOP_S = 10.0
_GRACE_S = 2
"""Seconds until requests are cancelled on shutdown, and again until the process is ended."""


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    page: str = "",
    other: str | Path | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the pages of a run, or of all runs in a folder, until Ctrl-C or SIGTERM.

    Args:
        run: the run's folder, which may still be growing; or a folder of runs.
        host: the address to listen on. Beyond loopback, every request needs the token that is
            part of the printed address.
        port: the port to listen on; 0 picks a free one, None takes 8200 or the next free one.
        page: the page to announce, such as `episodes/ID`; the overview by default.
        other: another run to compare with.
        ready: called with the page's address once the server is listening.

    Raises:
        ConfigError: the run does not exist, or the port is taken.
        SystemExit: with status 143, after SIGTERM.
    """
    server: WebServer
    if is_folder_of_runs(run):
        server = RunsServer(path_of(str(run), "run"), host=host, port=port)
    else:
        recorded = replay.open(run, may_be_unplayed=True)
        # If reading a long run takes longer than a moment, pages show the progress.
        with suppress(StillReading):
            BackgroundReading("episodes", recorded.episodes, recorded.share_read).require()
        beside = None if other is None else replay.open(other)
        server = ViewerServer(recorded, host=host, port=port, other=beside)
    signal.signal(signal.SIGTERM, _end)
    status = 0
    try:
        ready(server.address(page))
        server.wait()
    except KeyboardInterrupt:
        pass
    except SystemExit:
        status = 128 + signal.SIGTERM
        raise
    finally:
        server.close()
        _exit_after_main_thread(status)


def _exit_after_main_thread(status: int) -> None:
    """End the process after its main thread, even if a request's thread is still computing."""

    def end() -> None:
        threading.main_thread().join()
        time.sleep(_GRACE_S)
        os._exit(status)

    threading.Thread(target=end, name="exit", daemon=True).start()


def _end(number: int, _: object) -> None:
    """Exit with a signal's usual status, running `finally` blocks."""
    raise SystemExit(128 + number)


def serve_chat(
    model: ModelThread,
    history: ChatHistory,
    *,
    title: str,
    port: int,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a page to chat with a model until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: the port is taken.
        SystemExit: with status 143, after SIGTERM.
    """
    chat = LiveChat(model, history, title)
    signal.signal(signal.SIGTERM, _end)
    server = WebServer(lambda guard: chat_application(chat, guard), "127.0.0.1", port)
    try:
        ready(server.address())
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


def play_in_browser(
    target: Config | str | Path,
    *,
    policy: str = HUMAN,
    seed: int = 0,
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 8200,
    ready: Callable[[str], None] = lambda url: None,
    stays: threading.Event | None = None,
) -> tuple[ScoredEpisode, Path]:
    """Play or watch games in the browser, and browse the recorded games.

    The first Ctrl-C or SIGTERM ends and records the current game; the second exits immediately.

    Args:
        target: a run's folder, a configuration, or its file or name.
        policy: `human`, `model`, or the name of a scripted player.
        seed: the first game's seed.
        greedy: decode greedily instead of sampling.
        checkpoint: a run's checkpoint: `best`, `last` or a step; None uses its final model.
        overrides: `key=value` settings.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        ready: called with the page's address.
        stays: keep the pages open for more games until this event is set; None closes them with
            the first game.

    Returns:
        The last game, and the folder with all games.

    Raises:
        ConfigError: as in `agentrl.training.evaluation.interactive_play.play`; or the port is
            taken.
    """
    stage, servers = BrowserPlay(human=policy == HUMAN, stays=stays), list[ViewerServer]()

    def begun(folder: Path) -> None:
        (folder / "episodes").mkdir(exist_ok=True)
        stage.training_command = training_command(target, overrides, folder)
        servers.append(ViewerServer(replay.open(folder), host=host, port=port, stage=stage))
        ready(servers[0].address("play"))

    try:
        with _stops_on_signals(stage):
            return play(
                target, stage.audience(), policy=policy, seed=seed, greedy=greedy,
                checkpoint=checkpoint, overrides=overrides, begun=begun,
            )  # fmt: skip
    except AgentRLError as error:
        stage.end(None, str(error))
        raise
    finally:
        for server in servers:
            server.close()


@contextmanager
def _stops_on_signals(stage: BrowserPlay) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the game cleanly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def stop(number: int, _: object) -> None:
        restore()
        stage.stop()

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


class WebServer:
    """Pages served from a thread.

    Args:
        make: creates the ASGI application, given the guard that decides on requests.
        host: the address to listen on.
        port: see `serve`.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(
        self, make: Callable[[AccessGuard], Any], host: str = "127.0.0.1", port: int | None = 0
    ) -> None:
        if port is None:
            self._listener = _listen(host, DEFAULT_PORT, next_ports=_NEXT_PORTS)
        else:
            self._listener = _listen(host, port)
        self.guard = AccessGuard(*self._listener.getsockname()[:2])
        self._pages = make(self.guard)
        config = uvicorn.Config(
            self._pages, log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=_GRACE_S, lifespan="off", limit_concurrency=MAX_CONNECTIONS,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        # Don't make this a daemon thread, so that its worker threads are not daemons either. The
        # process must wait for them to return from OpenCV, which aborts if its threads are killed.
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="viewer"
        )
        self._thread.start()
        try:
            self._wait_for_start()
        # Handle even Ctrl-C, as the process would wait for the thread forever.
        except BaseException:
            self._server.should_exit = True
            raise

    def _wait_for_start(self) -> None:
        ends = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > ends:
                raise ConfigError(f"{self.url}: the server did not start within {_START_S:g} s")
            self._thread.join(0.02)

    @property
    def url(self) -> str:
        """The server's address, without the token."""
        host, port, *_ = self._listener.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def address(self, page: str = "") -> str:
        """Return a page's address with the token."""
        # After #, the token stays in the browser; beyond loopback, the server must see it once.
        separator = "#" if self.guard.is_loopback else "?"
        return f"{self.url}/{page}{separator}token={self.guard.token}"

    def wait(self) -> None:
        """Block until the server is closed or the process is interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """Stop the server; may be called twice."""
        # End event streams, which would delay the shutdown.
        self._pages.state.closing.set()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._pages.state.close()


class RunsServer(WebServer):
    """Pages of a folder of runs, and of each run in it, served from a thread.

    Raises:
        ConfigError: the folder does not exist, or the port is taken.
    """

    def __init__(self, folder: Path, *, host: str = "127.0.0.1", port: int | None = 0) -> None:
        runs = AllRuns(folder)
        super().__init__(lambda guard: run_list_application(runs, guard), host, port)


class ViewerServer(WebServer):
    """Pages of a run, served from a thread.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(
        self,
        run: Run,
        *,
        host: str = "127.0.0.1",
        port: int | None = 0,
        stage: BrowserPlay | None = None,
        other: Run | None = None,
    ) -> None:
        super().__init__(lambda guard: run_application(run, guard, stage, other), host, port)


def _listen(host: str, port: int, *, next_ports: int = 0) -> socket.socket:
    """Open a socket at a port, or if it is taken, at the next free port."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, TypeError, ValueError) as error:  # Malformed host names raise the latter two.
        listener.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        if taken and next_ports:
            return _listen(host, port + 1, next_ports=next_ports - 1)
        hint = ". Another server is using the port; --port 0 picks a free one" if taken else ""
        raise ConfigError(f"cannot listen on host={host}, port={port}: {error}{hint}") from error
    return listener
