import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Request,
    expect,
    sync_playwright,
)

from agentrl import replay
from agentrl.devices import DevicePool, open_device, open_source
from agentrl.replay.live_phone_states import LivePhones
from agentrl.rollout.nodes.shared_phone_pool import phone_states
from agentrl.viewer.viewer_server import ViewerServer
from tests.browser import start_chromium
from tests.conftest import PROBE
from tests.viewer import runs

Open = Callable[..., Page]
expect.set_options(timeout=20_000)


class Served(ViewerServer):
    """A server for a run, in a thread."""

    def __init__(self, run: Path) -> None:
        super().__init__(replay.open(run))
        self.run = run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for a small run, which tests must not modify."""
    served = Served(runs.run(tmp_path_factory.mktemp("runs") / "small"))
    yield served
    served.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Served]]:
    """Serves runs until the test ends."""
    started: list[Served] = []

    def start(run: Path) -> Served:
        started.append(Served(run))
        return started[-1]

    yield start
    for served in started:
        served.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser without network access beyond this machine."""
    with sync_playwright() as playwright:
        rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        started = start_chromium(playwright.chromium, rules)
        yield started
        started.close()


@pytest.fixture(scope="module")
def shared_page(chromium: Browser) -> Iterator[Page]:
    """The page that each test opens first: to load another address in it takes a third of the time
    of a new context.
    """
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def open_page(chromium: Browser, shared_page: Page) -> Iterator[Open]:
    """Opens a page; errors and warnings in it fail the test."""
    wrong: list[str] = []
    leave: list[Callable[[], None]] = []

    def open_page(
        url: str,
        width: int = 1280,
        height: int = 860,
        *,
        lost: bool = False,
        has_touch: bool = False,
    ) -> Page:
        if leave or has_touch:
            context = chromium.new_context(has_touch=has_touch)
            page = context.new_page()
            leave.append(context.close)
        else:
            page = shared_page
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="light")
        own = url.split("/")[2]

        def said(message: ConsoleMessage) -> None:
            # The browser itself reports missing resources, however the page handles them.
            is_missing = lost and "Failed to load resource" in message.text
            if message.type in ("error", "warning") and not is_missing:
                wrong.append(f"{message.text} {message.location['url']}")

        def failed(error: Error) -> None:
            wrong.append(str(error))

        def asked(request: Request) -> None:
            if request.url.split("/")[2] != own:
                wrong.append(request.url)

        for event, listener in (("console", said), ("pageerror", failed), ("request", asked)):
            page.on(event, listener)
            leave.append(partial(page.remove_listener, event, listener))
        page.goto(url)
        return page

    yield open_page
    for step in reversed(leave):
        step()
    shared_page.goto("about:blank")
    shared_page.mouse.move(0, 0)
    assert not wrong


@pytest.fixture(scope="module")
def pool(adb_server) -> Iterator[DevicePool]:
    opened = open_source("virtual:2", apps=[PROBE], tempo="quick")
    for serial in opened.serials:
        phone = open_device(serial)
        phone.launch("org.agentrl.probe", ".Main", {})
        phone.close()
    yield opened
    opened.close()


@pytest.fixture
def live(pool, tmp_path) -> Iterator[LivePhones]:
    live = LivePhones(runs.run(tmp_path / "run"), "rollout0", partial(phone_states, pool))
    yield live
    live.close()


def wait_for(condition, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def ask(
    url: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a raw request, because HTTP clients normalize the path."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request(method, path, headers={"Host": url.removeprefix("http://"), **headers})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found
