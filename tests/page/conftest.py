import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserType, sync_playwright

from agentrl.page import PagedApp, PageServer
from tests.page.phones import Tab
from tests.page.wire import PHONE_LOOPBACK, Wire

_CHROMIUM = Path(os.environ.get("AGENTRL_TEST_CHROMIUM", "/usr/bin/chromium"))
_ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    f"--host-resolver-rules=MAP localhost {PHONE_LOOPBACK}, MAP * ~NOTFOUND",
]
OpenPage = Callable[..., Tab]


@pytest.fixture(scope="module")  # while it is open, asyncio.run refuses to run
def chromium() -> Iterator[Browser]:
    """A real browser, for which this machine is at the other end of a tunnel."""
    with sync_playwright() as playwright:
        browser = start_chromium(playwright.chromium)
        yield browser
        browser.close()


def start_chromium(kind: BrowserType, *arguments: str) -> Browser:
    if not os.access(_CHROMIUM, os.X_OK):
        pytest.fail(
            f"the tests of the page need Chromium, and {_CHROMIUM} is none: apt-get install -y "
            "chromium, or name another one in AGENTRL_TEST_CHROMIUM",
            pytrace=False,
        )
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    return kind.launch(
        executable_path=_CHROMIUM, args=[*_ARGUMENTS, *root, *arguments], timeout=90_000
    )


@pytest.fixture(scope="module")  # while it is open, asyncio.run refuses to run
def only_server() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture
def server(only_server: PageServer) -> Iterator[PageServer]:
    """One for all tests, with the pages of this one."""
    only_server.start()
    yield only_server
    for host in list(only_server._hosts.values()):
        only_server.remove(host)


@pytest.fixture
def wire(server: PageServer) -> Iterator[Wire]:
    wire = Wire(server.port)
    yield wire
    wire.cut()


@pytest.fixture
def open_page(chromium: Browser, server: PageServer, wire: Wire) -> Iterator[OpenPage]:
    """Opens the page of an app on a screen of a phone."""
    tabs: list[Tab] = []

    def open_page(host: PagedApp, width: int = 360, height: int = 640, ratio: float = 2.0) -> Tab:
        server.add(host)
        tabs.append(Tab(chromium, width, height, ratio))
        tabs[-1].page.on("console", lambda message: print("page:", message.text))
        tabs[-1].page.goto(server.url(host))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.close()
