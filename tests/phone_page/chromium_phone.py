import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import cv2
import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, ViewportSize

from agentrl.devices import Action, CommandResult, Deadlines, Key, Swipe, Tap, Type, Window
from agentrl.errors import DeviceError
from agentrl.phone_page import PageApp
from agentrl.types import Image
from tests.phone_page.flaky_proxy import FlakyProxy

BROWSER = "com.android.chrome"
LAUNCHER = "com.android.launcher"
_PATIENCE_S = 30
# Pages of closed tabs, by pixel ratio, which a context cannot change: they are used again because
# a new context opens another window of the browser and starts another process.
_UNUSED: WeakKeyDictionary[Browser, dict[float, list[Page]]] = WeakKeyDictionary()


class Tab:
    """A page in Chromium with the screen of a phone."""

    def __init__(
        self, browser: Browser, width: int, height: int, ratio: float, **options: Any
    ) -> None:
        self.ratio = ratio
        self._unused = _UNUSED.setdefault(browser, {}).setdefault(ratio, [])
        self._is_reused, self._is_closed = not options, False
        size: ViewportSize = {"width": width, "height": height}
        if self._unused and self._is_reused:
            self.page: Page = self._unused.pop()
            self.page.set_viewport_size(size)
        else:
            emulated = {"viewport": size, "device_scale_factor": ratio, "is_mobile": True}
            self.page = browser.new_context(has_touch=True, **(options or emulated)).new_page()
            # Not to stdout, where jobs that play on this page print their results.
            self.page.on("console", lambda said: print("page:", said.text, file=sys.stderr))
        self._cdp: CDPSession = self.page.context.new_cdp_session(self.page)

    def screenshot(self, timeout_s: float = 30.0) -> Image:
        picture = self.page.screenshot(scale="device", timeout=1000 * timeout_s)
        png = np.frombuffer(picture, np.uint8)
        return cv2.cvtColor(cv2.imdecode(png, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)

    def tap(self, x: float, y: float) -> None:
        """At a position in pixels of the screen."""
        self.page.touchscreen.tap(x / self.ratio, y / self.ratio)

    def swipe(
        self, *points: tuple[float, float], seconds: float = 0.0, end: str = "touchEnd"
    ) -> None:
        """Along positions in pixels of the screen."""
        kinds = ["touchStart", *["touchMove"] * (len(points) - 1)]
        for kind, (x, y) in zip(kinds, points, strict=True):
            self.send_touch(kind, {"x": x / self.ratio, "y": y / self.ratio})
        self.page.wait_for_timeout(1000 * seconds)
        self.send_touch(end)

    def send_touch(self, kind: str, *points: Mapping[str, float]) -> None:
        """One event, with all fingers that are on the screen, in CSS pixels."""
        self._cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    def notice(self) -> str | None:
        """The words that the page shows in the place of the game."""
        return self.page.evaluate("() => notice.hidden ? null : notice.textContent")

    def wait_for_notice(self, words: str) -> None:
        said = "words => !notice.hidden && notice.textContent.includes(words)"
        self.page.wait_for_function(said, arg=words, timeout=1000 * _PATIENCE_S)

    def close(self) -> None:
        """May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_reused:
            self._cdp.detach()
            self.page.goto("about:blank")
            self._unused.append(self.page)
        else:
            self.page.context.close()


def wait_for(host: PageApp, **state: Any) -> Mapping[str, Any]:
    """What an app publishes, once it is this and the page shows the newest frame."""
    published: dict[str, Any] = {}

    def enough(status: Any) -> bool:
        published.clear()
        published.update(host.state() or {})
        return status.settled and published.items() >= state.items()

    host.wait(enough, _PATIENCE_S, f"the page did not show {state}")
    return published


def tap_app(tab: Tab, host: PageApp, x: float, y: float) -> None:
    """Touch a position in [0, 1] of the app's area."""
    shown = host.status().shown
    assert shown is not None
    area = shown.area
    tab.tap(area.left + x * area.width, area.top + y * area.height)


class ChromiumPhone:
    """A device with a screen of its own: Chromium between the bars of a phone.

    The bars go when the page fills the screen. It has its own end of the tunnel, too.
    """

    def __init__(
        self, browser: Browser, width: int, height: int, ratio: float, bars: tuple[int, int]
    ) -> None:
        """`width`, `height` and the bars above and below are in CSS pixels."""
        self.serial = "chromium"
        self.deadlines = replace(Deadlines(), launch_s=60.0, settle_s=30.0)
        self.front: str | None = LAUNCHER
        self.dialog = False
        """Whether it says that the browser does not respond."""
        self.commands: list[tuple[str, ...]] = []
        self.taps: list[tuple[float, float]] = []
        self.wire: FlakyProxy | None = None
        self.grants_full_screen = True
        self.overlay: Image | None = None
        """Something that lies over the top left corner of the screen."""
        self._css = (width, height)
        self._bars = bars
        self._tab = Tab(browser, width, height - sum(bars), ratio)
        self._full = False

    @property
    def page(self) -> Page:
        return self._tab.page

    def size(self) -> tuple[int, int]:
        width, height = self._css
        return math.ceil(width * self._tab.ratio), math.ceil(height * self._tab.ratio)

    def screenshot(self) -> Image:
        width, height = self.size()
        screen = np.full((height, width, 3), 60, np.uint8)
        if self.front == BROWSER:
            seen, top = self._tab.screenshot(), self._top()
            screen[top : top + seen.shape[0], : seen.shape[1]] = seen[: height - top]
        if self.overlay is not None:
            tall, wide = self.overlay.shape[:2]
            screen[:tall, :wide] = self.overlay
        return screen

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        match action:
            case Tap(x, y):
                self.taps.append((x, y))
                px, py = self._on_page(x, y)
                if self.front == BROWSER and 0 <= py < self._tall():
                    self._tab.tap(px, py)
                    self._follow()
            case Swipe(x1, y1, x2, y2):
                seconds = action.duration_s if duration_s is None else duration_s
                self._tab.swipe(self._on_page(x1, y1), self._on_page(x2, y2), seconds=seconds)
            case Key(name):
                self.commands.append(("key", name))
                if name == "HOME":
                    self.front = LAUNCHER
                    self.page.goto("about:blank")
            case Type(text):
                self.commands.append(("text", text))

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        raise DeviceError(f"{package} is not installed")

    def stop(self, package: str) -> None:
        self.commands.append(("stop", package))

    def focus(self) -> str | None:
        return None if self.dialog else self.front

    def window(self) -> Window:
        if self.dialog:
            return Window(kind="anr", package=BROWSER)
        return Window(kind="foreign_app", package=self.front or "")

    def app_state(self, package: str) -> Mapping[str, Any]:
        raise DeviceError(f"{package} publishes no state")

    def shell(self, *arguments: str) -> str:
        self.commands.append(arguments)
        if arguments[:5] == ("am", "start", "-a", "android.intent.action.VIEW", "-d"):
            self.front = BROWSER
            self.turn(*self._css, full=False)
            self.page.goto(arguments[5])
        return ""

    def batch(self, *commands: Sequence[str]) -> list[CommandResult]:
        return [CommandResult(output=self.shell(*command), code=0) for command in commands]

    def reverse(self, remote: str, local: str) -> None:
        assert remote == local, "one server, one port"
        if self.wire is None:
            self.wire = FlakyProxy(int(remote.removeprefix("tcp:")))

    def reverse_remove(self, remote: str) -> None:
        if self.wire is not None:
            self.wire.cut()
            self.wire = None

    def reconnect(self) -> None:
        self.commands.append(("reconnect",))

    def close(self) -> None:
        self._tab.close()

    def turn(self, width: int, height: int, *, full: bool) -> None:
        """Give the screen this size in CSS pixels, with the page on all of it or between bars."""
        self._css, self._full = (width, height), full
        bars = 0 if full else sum(self._bars)
        self.page.set_viewport_size({"width": width, "height": height - bars})

    def _follow(self) -> None:
        """Do what the page asked for, as a phone does a moment after a touch."""
        self.page.wait_for_timeout(100)
        asked = self.page.evaluate("() => document.fullscreenElement !== null")
        if asked and not self._full and self.grants_full_screen:
            self.turn(*self._css, full=True)

    def _top(self) -> int:
        return 0 if self._full else math.ceil(self._bars[0] * self._tab.ratio)

    def _tall(self) -> float:
        bars = 0 if self._full else sum(self._bars)
        return (self._css[1] - bars) * self._tab.ratio

    def _on_page(self, x: float, y: float) -> tuple[float, float]:
        width, height = self.size()
        return int(x * width) + 0.5, int(y * height) + 0.5 - self._top()
