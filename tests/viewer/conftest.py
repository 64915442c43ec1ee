import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from agentrl import replay
from agentrl.devices import DevicePool, open_device, open_source
from agentrl.replay.live import Live
from agentrl.rollout.phones import told_of
from agentrl.viewer.app import application
from agentrl.viewer.guard import Guard
from tests.browser import start_chromium
from tests.conftest import PROBE
from tests.viewer import runs

Open = Callable[..., Page]
expect.set_options(timeout=20_000)


class Served:
    """The pages of a run, in a thread."""

    def __init__(self, run: Path) -> None:
        self.run, self.guard = run, Guard("127.0.0.1")
        self._pages = application(replay.open(run), self.guard)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._pages,
                port=0,
                log_level="warning",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._thread.join(0.02)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._pages.state.wall.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The pages of a small run, which no test changes."""
    served = Served(runs.run(tmp_path_factory.mktemp("runs") / "small"))
    yield served
    served.stop()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Served]]:
    """Serves runs until the test ends."""
    started: list[Served] = []

    def start(run: Path) -> Served:
        started.append(Served(run))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for which there is this machine and nothing else."""
    with sync_playwright() as playwright:
        rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        started = start_chromium(playwright.chromium, rules)
        yield started
        started.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Open]:
    """Opens a page; what goes wrong in it fails the test."""
    wrong: list[str] = []
    contexts = []

    def open_page(
        url: str, width: int = 1280, height: int = 860, *, lost: bool = False, **options: str
    ) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        own = url.split("/")[2]

        def said(message: ConsoleMessage) -> None:
            # What is not there is told by the browser, whatever the page makes of it.
            if message.type in ("error", "warning") and not (
                lost and ("404" in message.text or "403" in message.text)
            ):
                wrong.append(message.text)

        def asked(request: Request) -> None:
            if request.url.split("/")[2] != own:
                wrong.append(request.url)

        page.on("console", said)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", asked)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="module")
def pool(adb_server) -> Iterator[DevicePool]:
    opened = open_source("virtual:2", apps=[PROBE], effect_delay_ms=(0, 0))
    for serial in opened.serials:
        phone = open_device(serial)
        phone.launch("org.agentrl.probe", ".Main", {})
        phone.close()
    yield opened
    opened.close()


@pytest.fixture
def live(pool, tmp_path) -> Iterator[Live]:
    told = Live(runs.run(tmp_path / "run"), "rollout0", partial(told_of, pool))
    yield told
    told.close()


def wait_for(told, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while not (found := told()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found
