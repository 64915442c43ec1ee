"""A virtual phone behind the real adb server whose browser is Chromium."""

import asyncio
import functools
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from playwright.sync_api import Error, TimeoutError, sync_playwright

from agentrl.types import Image
from tests.phone_page.chromium_phone import Tab
from virtual_phone.apps.app_manager import AppManager
from virtual_phone.apps.installed_app import InstalledApp
from virtual_phone.apps.system_packages import BROWSER
from virtual_phone.apps.text_page_app import TextPage
from virtual_phone.phone_display import VisibleState
from virtual_phone.protocol.adb_stream import Buffer
from virtual_phone.protocol.phone_server import PhoneServer
from virtual_phone.system import screen_frame
from virtual_phone.system.byte_channels import relay
from virtual_phone.system.phone_network import PhoneNetwork, PortListener
from virtual_phone.virtual_phone import VirtualPhone

TOOLBAR = 50
"""Height of the browser's own bar above its page, in pixels."""
BAR = 200
"""Its colour."""
_PATIENCE_S = 60.0
_TRIES = 3


class Chromium:
    """A page in a real browser, which lives in a thread of its own."""

    def __init__(self, start: Callable[..., Any], loopback: str, width: int, height: int) -> None:
        """`start` starts a browser, which then finds `localhost` at another address."""
        self._jobs: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self._thread = threading.Thread(
            target=self._run, args=(start, loopback, width, height), daemon=True
        )
        self._last: Image = np.zeros((height, width, 3), np.uint8)
        self._thread.start()
        self._do(lambda: None)

    def go(self, url: str) -> None:
        """Begin to load a page: what it needs comes through the phone, which must not wait."""

        def begin() -> None:
            # Once the script has returned; an earlier page may just now be leaving with it.
            script = "url => { setTimeout(() => { location.href = url; }); }"
            for left in reversed(range(_TRIES)):
                try:
                    self._tab.page.evaluate(script, url)
                    return
                except Error:
                    if not left:
                        raise

        self._do(begin)

    def picture(self) -> Image:
        """The page, or its last picture while it loads: what it needs comes through the phone."""
        with suppress(TimeoutError):
            self._last = self._do(lambda: self._tab.screenshot(timeout_s=1.0))
        return self._last

    def tap(self, x: float, y: float) -> None:
        self._do(lambda: self._tab.tap(x, y))

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(_PATIENCE_S)

    def _do(self, job: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self._jobs.put((job, done))
        return done.result(_PATIENCE_S)

    def _run(self, start: Callable[..., Any], loopback: str, width: int, height: int) -> None:
        rules = f"--host-resolver-rules=MAP localhost {loopback}, MAP * ~NOTFOUND"
        with sync_playwright() as playwright:
            browser = start(playwright.chromium, rules)
            self._tab = Tab(browser, width, height, 1.0)
            while (work := self._jobs.get()) is not None:
                job, done = work
                try:
                    done.set_result(job())
                except Exception as error:
                    done.set_exception(error)
            browser.close()


class BrowserApp(TextPage):
    """The browser as an app of the phone: its bar, and the page below."""

    def __init__(self, phone: "BrowsingPhone") -> None:
        super().__init__(BROWSER)
        self._phone = phone

    def touch(self, x: float, y: float) -> bool:
        width, height = self._phone.geometry.area
        if y * height >= TOOLBAR:
            self._phone.chromium.tap(x * width, y * height - TOOLBAR)
        else:
            self._phone.bar_touched = True
        return False


class BridgedNetwork(PhoneNetwork):
    """The phone's ports, which its browser finds at an address of this machine."""

    def __init__(self, loopback: str) -> None:
        super().__init__()
        self._loopback = loopback
        self._servers: dict[str, asyncio.Task[asyncio.Server]] = {}

    def listen(self, address: str, listener: PortListener) -> str:
        found = super().listen(address, listener)
        bound = socket.create_server((self._loopback, int(found.removeprefix("tcp:"))))
        started = asyncio.start_server(functools.partial(self._join, found), sock=bound)
        self._servers[found] = asyncio.get_running_loop().create_task(started)
        return found

    def close(self, address: str) -> None:
        super().close(address)
        server = self._servers.pop(address, None)
        if server is not None:
            server.add_done_callback(lambda task: task.result().close())

    def close_all(self, owner: object) -> None:
        for address, _ in self.reversed(owner):
            self.close(address)

    async def _join(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        other = self.connect(address)
        if other is None:
            writer.close()
        else:
            await relay(_SocketEnd(reader, writer), other)


class _SocketEnd:
    """A connection of the browser as one of the phone's programs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.drain = writer.drain

    async def read(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except OSError:
            return b""

    def write(self, data: Buffer) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


class BrowsingPhone(VirtualPhone):
    """A phone that opens web pages in Chromium, below its status bar and the browser's own bar."""

    def __init__(self, start: Callable[..., Any], loopback: str, **options: Any) -> None:
        super().__init__(tempo="quick", **options)
        self.network = BridgedNetwork(loopback)
        self.opened: list[str] = []
        """What was asked for, in order."""
        self.bar_touched = False
        width, height = self.geometry.area
        self.chromium = Chromium(start, loopback, width, height - TOOLBAR)
        self.tasks.bring_to_front = self._bring  # type: ignore[method-assign]

    @property
    def captured(self) -> VisibleState:
        shown = super().captured
        if shown.front != BROWSER or self.dialog is not None:
            return shown
        page = self.chromium.picture()
        bar = np.full((TOOLBAR, page.shape[1], 3), BAR, np.uint8)
        frame = screen_frame.compose(np.vstack([bar, page]), *self.geometry.size, "12:00")
        return replace(shown, frame=frame)

    def _bring(self, package: str, activity: str | None = None, *, text: str = "") -> None:
        if package != BROWSER:
            AppManager.bring_to_front(self.tasks, package, activity, text=text)
        elif "  " not in text:  # else it is the title, which Chromium shows by itself
            self.opened.append(text)
            self.chromium.go(text)
            self.tasks.pages[BROWSER] = InstalledApp(app=BrowserApp(self))
            self.tasks.launch(BROWSER, {"text": text})

    def _on_change(self) -> None:
        super()._on_change()
        if self.opened and self.tasks.front != BROWSER:
            self.chromium.go("about:blank")


class Station:
    """Such a phone in a thread of its own, where an adb server finds it."""

    def __init__(self, start: Callable[..., Any], number: int = 0, **options: Any) -> None:
        """Phones of different numbers have ports of their own."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = self._start(start, f"127.0.1.{number}", options)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(_PATIENCE_S)
        self.phone: BrowsingPhone = self._server.phone  # type: ignore[assignment]
        self.serial = f"127.0.0.1:{self._server.port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), self._loop).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self.phone.chromium.close()
        self._loop.close()

    def run(self, act: Callable[[], Any]) -> Any:
        """Do something with the phone, where it lives."""

        async def once() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(once(), self._loop).result(_PATIENCE_S)

    async def _start(self, start: Any, loopback: str, options: Any) -> PhoneServer:
        return PhoneServer(BrowsingPhone(start, loopback, **options))
