from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserType, sync_playwright

from agentrl.phone_page import PageApp, PageServer
from tests import browser
from tests.phone_page.chromium_phone import Tab
from tests.phone_page.flaky_proxy import PHONE_LOOPBACK, FlakyProxy

_NAMES = f"--host-resolver-rules=MAP localhost {PHONE_LOOPBACK}, MAP * ~NOTFOUND"
OpenPage = Callable[..., Tab]


@pytest.fixture(scope="module")  # while it is open, asyncio.run refuses to run
def chromium() -> Iterator[Browser]:
    """A real browser, for which this machine is at the other end of a tunnel."""
    with sync_playwright() as playwright:
        started = start_chromium(playwright.chromium)
        yield started
        started.close()


def start_chromium(kind: BrowserType, *arguments: str) -> Browser:
    return browser.start_chromium(kind, _NAMES, *arguments)


@pytest.fixture(scope="module")  # while it is open, asyncio.run refuses to run
def only_server() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture
def server(only_server: PageServer) -> Iterator[PageServer]:
    """One for all tests, with the pages of this one."""
    only_server.start()
    yield only_server
    for app in list(only_server._apps.values()):
        only_server.remove(app)


@pytest.fixture
def wire(server: PageServer) -> Iterator[FlakyProxy]:
    wire = FlakyProxy(server.port)
    yield wire
    wire.cut()


@pytest.fixture
def open_page(chromium: Browser, server: PageServer, wire: FlakyProxy) -> Iterator[OpenPage]:
    """Opens the page of an app on a screen of a phone."""
    tabs: list[Tab] = []

    def open_page(app: PageApp, width: int = 360, height: int = 640, ratio: float = 2.0) -> Tab:
        server.add(app)
        tabs.append(Tab(chromium, width, height, ratio))
        tabs[-1].page.goto(server.url(app))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.close()
