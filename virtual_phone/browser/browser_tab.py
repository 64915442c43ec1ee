"""The page that a phone's browser shows: its inputs are queued, its frames are pushed."""

import asyncio
import base64
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from playwright.async_api import CDPSession, Error, Page

from virtual_phone.apps.app import AppHost, View
from virtual_phone.browser import accessibility_views, chromium
from virtual_phone.browser.devtools_socket import DevToolsTarget
from virtual_phone.browser.network_proxy import NetworkProxy
from virtual_phone.types import Image

log = logging.getLogger(__name__)

_STEP_S = 0.016
_MAX_WAITING = 100
_GESTURE_S = 2.0
"""Time after a touch in which a page may open another one, in seconds."""
_KEYS = {
    "ENTER": "Enter", "DEL": "Backspace", "FORWARD_DEL": "Delete", "TAB": "Tab", "SPACE": "Space",
    "ESCAPE": "Escape", "DPAD_UP": "ArrowUp", "DPAD_DOWN": "ArrowDown", "DPAD_LEFT": "ArrowLeft",
    "DPAD_RIGHT": "ArrowRight", "DPAD_CENTER": "Enter", "PAGE_UP": "PageUp",
    "PAGE_DOWN": "PageDown", "MOVE_HOME": "Home", "MOVE_END": "End",
}  # fmt: skip
"""Names of Android's keys (without `KEYCODE_`) and of the browser's."""

_BACKGROUND_S, _CAPTURE_S = 10.0, 0.5
_MAX_TITLE = 1000
_WORLD = "agentrl"
"""Name of the world of `_TELL_TITLE`, whose variables the page does not see."""
_TELL_TITLE = """\
if (top === self) {
    let known = null
    setInterval(() => {
        if (document.title !== known) agentrlTitle(known = document.title)
    }, 50)
}
"""
_tasks: set["asyncio.Task[None]"] = set()

Job = Callable[[Page, CDPSession], Awaitable[object]]


@dataclass(slots=True, kw_only=True, frozen=True)
class _Queued:
    """A job of a page."""

    job: Job
    is_input: bool
    """Whether it is a touch or a key of the phone."""


class BrowserTab:
    """One page in a profile of its own, from the first URL until it is closed.

    A page that does not react within the deadline is reported as not responding, and one whose
    process ends as crashed, as Android does.

    Args:
        host: the phone.
        url: what to open first.
        hosts: see `NetworkProxy`.
        deadline_s: time limit for a reaction of the page, in seconds.
    """

    def __init__(self, host: AppHost, url: str, hosts: Sequence[str], deadline_s: float) -> None:
        self.url, self.title = url, ""
        self.frame: Image | None = None
        """The last frame, uint8[height, width, 3]; None before the first one."""
        self.target: DevToolsTarget | None = None
        """The page in Chromium's DevTools protocol; None until it is open."""
        self._host, self._deadline_s = host, deadline_s
        self._proxy = NetworkProxy(host.network, hosts)
        self._jobs: asyncio.Queue[_Queued] = asyncio.Queue(_MAX_WAITING)
        self._captured_s = 0.0
        """When the last frame was captured, in seconds since 1970."""
        self._touched_s = -_GESTURE_S
        self._navigation = asyncio.Event()
        """Set when the page has changed."""
        self._do(partial(_open, url))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _do(self, job: Job, *, is_input: bool = False) -> None:
        """Let the page do something after all that waits; drop it if too much does."""
        with suppress(asyncio.QueueFull):
            self._jobs.put_nowait(_Queued(job=job, is_input=is_input))

    def tap(self, x: float, y: float) -> None:
        """Tap (x, y), in fractions of the page's area."""
        self.swipe(x, y, x, y, 0)

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> None:
        """Move a finger from (x1, y1) to (x2, y2), in fractions of the page's area."""
        self._touched_s = time.monotonic()
        width, height = (side / self._host.scale for side in self._host.area)
        start, end = (x1 * width, y1 * height), (x2 * width, y2 * height)
        duration_s = min(duration_ms / 1000, self._deadline_s / 2)
        self._do(lambda _, session: _move_finger(session, start, end, duration_s), is_input=True)

    def press(self, code: str) -> None:
        """Press a key such as `KEYCODE_ENTER`."""
        self._touched_s = time.monotonic()
        name = code.removeprefix("KEYCODE_")
        key = _KEYS.get(name, name.lower() if len(name) == 1 else "")

        async def press(page: Page, _: CDPSession) -> None:
            if key:
                await page.keyboard.press(key)

        self._do(press, is_input=True)

    def insert_text(self, text: str) -> None:
        """Type text into the focused field."""
        self._do(lambda page, _: page.keyboard.insert_text(text), is_input=True)

    def clear_text(self) -> None:
        """Delete the text of the focused field."""

        async def clear(page: Page, session: CDPSession) -> None:
            await page.keyboard.press("Control+A")
            await page.keyboard.press("Delete")

        self._do(clear, is_input=True)

    def go_back(self) -> None:
        """Return to the previous page of the history; leave the app if there is none."""

        async def back(_: Page, session: CDPSession) -> None:
            history = await session.send("Page.getNavigationHistory")
            entries, index = history["entries"], history["currentIndex"]
            if index > 0 and entries[index - 1]["url"] != "about:blank":
                earlier = {"entryId": entries[index - 1]["id"]}
                self._navigation.clear()
                await session.send("Page.navigateToHistoryEntry", earlier)
                # Another BACK must find the history after this one.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._navigation.wait(), self._deadline_s / 2)
            else:
                self._host.leave()

        self._do(back, is_input=True)

    def resize(self) -> None:
        """Take over the size of the phone's screen, after it has turned for example."""
        self._do(self._set_size)

    async def views(self) -> Sequence[View]:
        """Return the views of the page, from its accessibility tree.

        Raises:
            TimeoutError: the page does not respond.
        """
        found: asyncio.Future[Sequence[View]] = asyncio.get_running_loop().create_future()

        async def read(_: Page, session: CDPSession) -> None:
            views = await accessibility_views.read(session, self._host.area)
            if not found.done():
                found.set_result(views)

        self._do(read)
        return await asyncio.wait_for(found, self._deadline_s)

    def close(self) -> None:
        """Close the page and its profile; waiting inputs are dropped."""
        self._task.cancel()

    @property
    def _css_size(self) -> tuple[int, int]:
        """Width and height in CSS pixels, rounded up: the last ones may be seen in part."""
        width, height = self._host.area
        return math.ceil(width / self._host.scale), math.ceil(height / self._host.scale)

    async def _run(self) -> None:
        context = None
        try:
            async with asyncio.timeout(2 * self._deadline_s + 60):
                proxy = await self._proxy.open()
                browser = await chromium.shared(self._host.scale)
                context = await browser.new_context(proxy)
                page, session = await self._open_page(context)
                info = await session.send("Target.getTargetInfo")
                target = str(info["targetInfo"]["targetId"])
                self.target = DevToolsTarget(port=browser.devtools_port, id=target)
            while True:
                await self._perform(await self._jobs.get(), page, session)
        except Exception as error:
            # Chromium has ended or does not start, for example.
            log.warning("the browser cannot show %s: %s", self.url[:200], error)
            self._host.fail("crash")
        finally:
            self._proxy.close()
            if context is not None:
                _in_background(context.close)

    async def _perform(self, queued: _Queued, page: Page, session: CDPSession) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await queued.job(page, session)
                if queued.is_input:
                    await self._capture(session)
                    self._host.handled()
        except TimeoutError:
            self._host.fail("anr")
        except Error as error:
            if page.is_closed() or "crash" in error.message.lower():
                raise
            log.debug("the page refused an input: %s", error.message)

    async def _open_page(self, context: Any) -> tuple[Page, CDPSession]:
        page: Page = await context.new_page()
        session = await context.new_cdp_session(page)
        page.on("crash", lambda _: self._host.fail("crash"))
        page.on("dialog", lambda dialog: _in_background(dialog.dismiss))
        page.on("popup", lambda popup: _in_background(partial(self._follow, popup)))
        page.on("framenavigated", lambda frame: self._navigated(frame, page))
        session.on("Page.screencastFrame", lambda event: self._show(event, session))
        session.on("Runtime.bindingCalled", self._rename)
        await self._set_size(page, session)
        await session.send("Page.enable")
        await session.send("Runtime.enable")
        binding = {"name": "agentrlTitle", "executionContextName": _WORLD}
        await session.send("Runtime.addBinding", binding)
        script = {"source": _TELL_TITLE, "worldName": _WORLD}
        await session.send("Page.addScriptToEvaluateOnNewDocument", script)
        await session.send("Page.startScreencast", {"format": "png"})
        return page, session

    async def _set_size(self, _: Page, session: CDPSession) -> None:
        width, height = self._css_size
        await session.send(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": width, "height": height, "mobile": True,
                "deviceScaleFactor": self._host.scale,
            },
        )  # fmt: skip

    async def _capture(self, session: CDPSession) -> None:
        """Draw the page as it is now, also if the frame of the screencast is still on its way."""
        taken = None
        while taken is None:
            began_s = time.time()
            capture = session.send("Page.captureScreenshot", {"format": "png"})
            # A page that is just being replaced by another one never answers.
            with suppress(TimeoutError):
                taken = await asyncio.wait_for(capture, _CAPTURE_S)
        self._captured_s = began_s
        self.frame = _decoded(taken["data"])

    def _show(self, event: dict[str, Any], session: CDPSession) -> None:
        shown = {"sessionId": event["sessionId"]}
        _in_background(partial(session.send, "Page.screencastFrameAck", shown))
        if event["metadata"].get("timestamp", math.inf) >= self._captured_s:
            self.frame = _decoded(event["data"])
            self._host.changed()

    def _navigated(self, frame: Any, page: Page) -> None:
        if frame == page.main_frame:
            self.url = page.url
            self._navigation.set()
            self._host.changed()

    def _rename(self, event: dict[str, Any]) -> None:
        self.title = str(event["payload"])[:_MAX_TITLE]
        self._host.changed()

    async def _follow(self, popup: Page) -> None:
        """Open in this page what a touched link wants to open in another one."""
        url, gesture = popup.url, time.monotonic() - self._touched_s < _GESTURE_S
        await popup.close()
        if gesture and is_web(url):
            self._touched_s = -_GESTURE_S
            self._do(partial(_open, url))


def _decoded(png: str) -> Image:
    image = cv2.imdecode(np.frombuffer(base64.b64decode(png), np.uint8), cv2.IMREAD_COLOR_RGB)
    return np.asarray(image, np.uint8)


async def all_closed() -> None:
    """Wait until what was begun in the background has ended, also the closing of pages."""
    await asyncio.gather(*_tasks)


def is_web(url: str) -> bool:
    """Return whether the browser opens a URL: http, https, or an empty page."""
    return url.partition(":")[0].lower() in ("http", "https") or url == "about:blank"


async def _open(url: str, page: Page, session: CDPSession) -> None:
    await page.goto(url, wait_until="commit", timeout=0)


async def _move_finger(
    session: CDPSession, start: tuple[float, float], end: tuple[float, float], duration_s: float
) -> None:
    async def send(kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y} for x, y in points]
        await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    await send("touchStart", start)
    steps = max(round(duration_s / _STEP_S), 1) if start != end else 0
    (x, y), (across, down) = start, (end[0] - start[0], end[1] - start[1])
    for step in range(1, steps + 1):
        await asyncio.sleep(duration_s / steps)
        await send("touchMove", (x + across * step / steps, y + down * step / steps))
    if not steps:
        await asyncio.sleep(duration_s)
    await send("touchEnd")


def _in_background(job: Callable[[], Awaitable[Any]]) -> None:
    """Run something whose failure only means that the page is gone."""

    async def run() -> None:
        with suppress(Error, TimeoutError):
            await asyncio.wait_for(job(), _BACKGROUND_S)

    task = asyncio.get_running_loop().create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
