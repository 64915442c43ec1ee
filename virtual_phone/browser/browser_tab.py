"""The page that a phone's browser shows: its inputs are queued, its frames are pushed."""

import asyncio
import base64
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import cv2
import numpy as np
from playwright.async_api import BrowserContext, CDPSession, Error, Page

from virtual_phone.apps.app import AppHost, View
from virtual_phone.browser import accessibility_views, chromium
from virtual_phone.browser.devtools_socket import DevToolsTarget
from virtual_phone.browser.network_proxy import NetworkProxy
from virtual_phone.types import Image

log = logging.getLogger(__name__)

_STEP_S = 0.016
"""Time between two moves of a finger, in seconds."""
_FRAME_S = 1 / 15
"""Least time between two frames of the screencast, in seconds."""
_CAPTURE_S = 0.5
_PNG = {"format": "png", "optimizeForSpeed": True}
_BACKGROUND_S = 10.0
_MAX_WAITING = 100
_MAX_TEXT = 2000
"""Maximum number of characters of a published URL or title."""
_KEYS = {
    "ENTER": "Enter", "DEL": "Backspace", "FORWARD_DEL": "Delete", "TAB": "Tab", "SPACE": "Space",
    "ESCAPE": "Escape", "DPAD_UP": "ArrowUp", "DPAD_DOWN": "ArrowDown", "DPAD_LEFT": "ArrowLeft",
    "DPAD_RIGHT": "ArrowRight", "DPAD_CENTER": "Enter", "PAGE_UP": "PageUp",
    "PAGE_DOWN": "PageDown", "MOVE_HOME": "Home", "MOVE_END": "End",
}  # fmt: skip
"""Names of Android's keys (without `KEYCODE_`) and of the browser's."""
_WORLD = "agentrl"
"""Name of the world of `_TITLE_SCRIPT`, whose variables the page does not see."""
_TITLE_SCRIPT = f"""\
if (top === self) {{
    let known = null
    setInterval(() => {{
        const parts = [location.href, document.title].map(part => part.slice(0, {_MAX_TEXT}))
        const now = JSON.stringify(parts)
        if (now !== known) agentrlTitle(known = now)
    }}, 50)
}}
"""
_runs: set["asyncio.Task[None]"] = set()
_background_tasks: set["asyncio.Task[None]"] = set()

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
        self.url, self.title = "about:blank", ""
        self.frame: Image | None = None
        """The last frame, uint8[height, width, 3]; None before the first one."""
        self.target: DevToolsTarget | None = None
        """The page in Chromium's DevTools protocol; None until it is open."""
        self._host, self._deadline_s = host, deadline_s
        # A change of the phone's density applies to the next launch.
        self._scale = host.scale
        self._proxy = NetworkProxy(host.network, hosts)
        self._jobs: asyncio.Queue[_Queued] = asyncio.Queue(_MAX_WAITING)
        self._session: CDPSession | None = None
        self._is_closed = self._has_crashed = False
        self._frame_s = 0.0
        """When the page looked like the last frame, in seconds since 1970."""
        self._navigation = asyncio.Event()
        """Set when the page has changed."""
        self._run_task = asyncio.get_running_loop().create_task(self._run(url))
        _runs.add(self._run_task)
        self._run_task.add_done_callback(_runs.discard)

    def tap(self, x: float, y: float) -> None:
        """Tap (x, y), in fractions of the page's area."""
        self.swipe(x, y, x, y, 0)

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> None:
        """Move a finger from (x1, y1) to (x2, y2), in fractions of the page's area."""
        width, height = (side / self._scale for side in self._host.area)
        start, end = (x1 * width, y1 * height), (x2 * width, y2 * height)
        duration_s = min(duration_ms / 1000, self._deadline_s / 2)
        self._enqueue(
            lambda _, session: _move_finger(session, start, end, duration_s), is_input=True
        )

    def press(self, code: str) -> None:
        """Press a key such as `KEYCODE_ENTER`; one that the browser does not know does nothing."""
        name = code.removeprefix("KEYCODE_")
        key = _KEYS.get(name, name.lower() if len(name) == 1 else "")

        async def press(page: Page, _: CDPSession) -> None:
            if key:
                await page.keyboard.press(key)

        self._enqueue(press, is_input=True)

    def type_text(self, text: str) -> None:
        """Type text into the focused field: printable ASCII as keys, other text at once."""

        async def type_(page: Page, _: CDPSession) -> None:
            # Android's `input text` presses keys, too, which date fields and scripts listen to.
            is_on_keys = text.isascii() and text.isprintable()
            await (page.keyboard.type(text) if is_on_keys else page.keyboard.insert_text(text))

        self._enqueue(type_, is_input=True)

    def clear_text(self) -> None:
        """Delete the text of the focused field."""

        async def clear(page: Page, _: CDPSession) -> None:
            await page.keyboard.press("Control+A")
            await page.keyboard.press("Delete")

        self._enqueue(clear, is_input=True)

    def go_back(self) -> None:
        """Return to the previous page of the history; leave the app if there is none."""

        async def back(_: Page, session: CDPSession) -> None:
            history = await session.send("Page.getNavigationHistory")
            entries, index = history["entries"], history["currentIndex"]
            if index == 0 or entries[index - 1]["url"] == "about:blank":
                self._host.leave()
                return
            self._navigation.clear()
            earlier = {"entryId": entries[index - 1]["id"]}
            await session.send("Page.navigateToHistoryEntry", earlier)
            # Another BACK must find the history after this one.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deadline_s / 2):
                    await self._navigation.wait()

        self._enqueue(back, is_input=True)

    def resize(self) -> None:
        """Apply the current size of the phone's screen, which has turned for example."""
        self._enqueue(self._set_size)

    async def views(self) -> Sequence[View]:
        """Return the views of the page, from its accessibility tree.

        Raises:
            TimeoutError: the page does not respond.
            Error: the page is just being replaced or closed.
        """
        if self._session is None:
            return []
        async with asyncio.timeout(self._deadline_s):
            return await accessibility_views.read(self._session, self._host.area, self._scale)

    def close(self) -> None:
        """Close the page and its profile; waiting inputs are dropped."""
        self._is_closed = True
        self._run_task.cancel()

    def _enqueue(self, job: Job, *, is_input: bool = False) -> None:
        """Queue a job; drop it if the queue is full."""
        try:
            self._jobs.put_nowait(_Queued(job=job, is_input=is_input))
        except asyncio.QueueFull:
            log.warning("%s: %d inputs are waiting; dropping one", self.url, _MAX_WAITING)

    @property
    def _css_size(self) -> tuple[int, int]:
        """Width and height in CSS pixels, rounded up: the last ones may be seen in part."""
        width, height = self._host.area
        return math.ceil(width / self._scale), math.ceil(height / self._scale)

    async def _run(self, url: str) -> None:
        context = None
        try:
            async with asyncio.timeout(2 * self._deadline_s + chromium.START_S):
                proxy = await self._proxy.open()
                browser, context = await chromium.open_context(self._scale, proxy)
                page, session = await self._open_page(context)
                info = await session.send("Target.getTargetInfo")
                target = str(info["targetInfo"]["targetId"])
                self.target = DevToolsTarget(port=browser.devtools_port, id=target)
                self._session = session
            _open(page, url)
            while not self._is_closed:
                await self._perform(await self._jobs.get(), page, session)
        except Exception as error:
            # Chromium has ended or does not start, for example.
            if not self._is_closed:
                is_expected = isinstance(error, Error | OSError)  # also timeouts
                log.warning(
                    "the browser cannot show %s: %s",
                    url[:_MAX_TEXT],
                    error,
                    exc_info=not is_expected,
                )
            self._fail("crash")
        finally:
            self._proxy.close()
            if context is not None:
                _in_background(context.close)

    async def _perform(self, queued: _Queued, page: Page, session: CDPSession) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                try:
                    await queued.job(page, session)
                except Error as error:  # the input has led to another page, for example
                    log.debug("the page refused an input: %s", error.message)
                if queued.is_input:
                    await self._capture(session)
                    self._host.handled()
        except TimeoutError:
            self._fail("anr")

    def _fail(self, kind: Literal["anr", "crash"]) -> None:
        """Report a fault, unless the page has been closed since."""
        if not self._is_closed:
            self._host.fail(kind)

    async def _open_page(self, context: BrowserContext) -> tuple[Page, CDPSession]:
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        page.on("crash", lambda _: self._on_end())
        page.on("close", lambda _: self._on_end())
        page.on("dialog", lambda dialog: _in_background(
            # Dismissing the question whether to leave a page would keep it open.
            dialog.accept if dialog.type == "beforeunload" else dialog.dismiss
        ))  # fmt: skip
        page.on("framenavigated", lambda frame: self._on_navigation(frame == page.main_frame, page))
        context.on("page", lambda popup: _in_background(partial(self._follow, popup, page)))
        session.on(
            "Page.screencastFrame",
            lambda event: _in_background(partial(self._show, event, session)),
        )
        session.on("Runtime.bindingCalled", self._on_title)
        await self._set_size(page, session)
        await session.send("Page.enable")
        await session.send("Runtime.enable")
        binding = {"name": "agentrlTitle", "executionContextName": _WORLD}
        await session.send("Runtime.addBinding", binding)
        script = {"source": _TITLE_SCRIPT, "worldName": _WORLD}
        await session.send("Page.addScriptToEvaluateOnNewDocument", script)
        await session.send("Page.startScreencast", {"format": "png"})
        return page, session

    async def _set_size(self, _: Page, session: CDPSession) -> None:
        width, height = self._css_size
        await session.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "mobile": True, "deviceScaleFactor": self._scale},
        )

    async def _capture(self, session: CDPSession) -> None:
        """Draw the page as it is now, also if the frame of the screencast is still on its way."""
        taken, patience_s = None, _CAPTURE_S
        while taken is None:
            if self._has_crashed:
                raise ConnectionError("its process has ended")
            began_s = time.time()
            # A page that is just being replaced by another one never answers, or with an error.
            try:
                async with asyncio.timeout(patience_s):
                    taken = await session.send("Page.captureScreenshot", _PNG)
            except TimeoutError:
                patience_s *= 2
            except Error as error:
                log.debug("no capture: %s", error.message)
                await asyncio.sleep(_STEP_S)
        self.frame = await asyncio.to_thread(_decoded, taken["data"])
        self._frame_s = began_s

    async def _show(self, event: dict[str, Any], session: CDPSession) -> None:
        """Show a frame of the screencast, and ask for the next one."""
        seen_s = float(event["metadata"].get("timestamp", math.inf))
        image = await asyncio.to_thread(_decoded, event["data"])
        # A frame from before the last capture may come after it.
        if not self._is_closed and seen_s >= self._frame_s:
            self.frame = image
            self._host.changed()
        await asyncio.sleep(_FRAME_S)
        shown = {"sessionId": event["sessionId"]}
        await session.send("Page.screencastFrameAck", shown)

    # Playwright's connection does not survive an exception in one of these.

    def _on_end(self) -> None:
        self._has_crashed = True
        self._fail("crash")

    def _on_navigation(self, is_main: bool, page: Page) -> None:
        if is_main:
            self._navigation.set()
            if page.url.startswith("chrome-error:"):  # where no script runs
                self.url, self.title = page.url, ""
                self._host.changed()

    def _on_title(self, event: dict[str, Any]) -> None:
        # A page may have halves of characters in its title, which cannot be published.
        url, title = json.loads(event["payload"])
        self.url, self.title = (part.encode("utf-8", "replace").decode() for part in (url, title))
        self._host.changed()

    async def _follow(self, popup: Page, page: Page) -> None:
        """Open in this page what a touched link wants to open in another one."""
        if popup != page:
            url = popup.url
            await popup.close()
            if is_web(url):
                _open(page, url)


async def all_closed() -> None:
    """Wait until all closed pages have ended, with what they have begun in the background."""
    await asyncio.gather(*_runs, return_exceptions=True)
    await asyncio.gather(*_background_tasks, return_exceptions=True)


def is_web(url: str) -> bool:
    """Return whether the browser opens a URL: http, https, or an empty page."""
    return url.partition(":")[0].lower() in ("http", "https") or url == "about:blank"


def _open(page: Page, url: str) -> None:
    """Begin to open a URL; a server that does not answer is not the page's fault."""
    _in_background(partial(page.goto, url, wait_until="commit", timeout=0))


def _decoded(png: str) -> Image:
    image = cv2.imdecode(np.frombuffer(base64.b64decode(png), np.uint8), cv2.IMREAD_COLOR_RGB)
    return np.asarray(image, np.uint8)


async def _move_finger(
    session: CDPSession, start: tuple[float, float], end: tuple[float, float], duration_s: float
) -> None:
    async def send(kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y} for x, y in points]
        await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    # Positions are in CSS pixels of the page, which is zoomed if it is wider than the screen.
    metrics = await session.send("Page.getLayoutMetrics")
    zoom = float(metrics["cssVisualViewport"]["scale"])
    start, end = (start[0] / zoom, start[1] / zoom), (end[0] / zoom, end[1] / zoom)
    await send("touchStart", start)
    steps = max(round(duration_s / _STEP_S), 1) if start != end else 0
    (x, y), (across, down) = start, (end[0] - start[0], end[1] - start[1])
    began_s = time.monotonic()
    step = 0
    while step < steps:
        # A page that handles each move takes time: skip the steps that are late.
        late = int((time.monotonic() - began_s) / duration_s * steps)
        step = min(max(step + 1, late), steps)
        await asyncio.sleep(began_s + duration_s * step / steps - time.monotonic())
        await send("touchMove", (x + across * step / steps, y + down * step / steps))
    if not steps:
        await asyncio.sleep(duration_s)
    await send("touchEnd")


def _in_background(job: Callable[[], Awaitable[Any]]) -> None:
    """Run something whose failure only means that the page is gone."""

    async def run() -> None:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_BACKGROUND_S):
                await job()

    task = asyncio.get_running_loop().create_task(run())
    _background_tasks.add(task)
    task.add_done_callback(_background_tasks.discard)
