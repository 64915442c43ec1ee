"""Runs an app whose screen is a page in a phone's browser."""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.errors import DeviceTimeout
from agentrl.phone_page import locate_page, painted_frames
from agentrl.phone_page.page_connection_state import (
    CloseReason,
    PageConnectionState,
    PageLink,
    PageVisibility,
)
from agentrl.phone_page.page_messages import Gesture, PageHello
from agentrl.phone_page.painted_frames import PageFrame, PaintedFrames
from agentrl.types import Image
from virtual_phone.apps.app import App
from virtual_phone.apps.installed_app import InstalledApp

log = logging.getLogger(__name__)

_NO_CLOCK_S = 0.05
"""Interval between checks of whether an app without a clock now has one."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PageStatus:
    """State of a page at one moment."""

    running: bool
    """Whether the app was launched and has neither stopped nor crashed since."""
    visibility: PageVisibility
    connected: bool
    size: tuple[int, int] | None
    """Width and height in pixels of the phone's screen; None before the first connection."""
    number: int
    """Number of the newest frame."""
    shown: PageFrame | None
    """The last frame painted by the page."""
    probes: tuple[Gesture, ...]
    """Touches on the pattern since calibration began."""

    @property
    def settled(self) -> bool:
        """Whether the page is visible and shows the newest frame."""
        newest = self.shown is not None and self.shown.number == self.number
        return newest and self.visibility is PageVisibility.VISIBLE


class PageApp:
    """One app and the page that shows it; thread-safe.

    As on a virtual phone, state is published once its picture is on the screen, which is when the
    page reports that it has painted the picture. Every call raises DeviceTimeout while the app
    hangs.
    """

    def __init__(self, app: App, *, deadline_s: float = 5.0) -> None:
        """Take ownership of an app that is not launched and whose page is not open.

        Args:
            app: the app; nothing else may call it.
            deadline_s: seconds a call waits for another call into the app to return.
        """
        self.package = app.package
        self.activities: tuple[str, ...] = (app.activity, *getattr(app, "activities", ()))
        self.token = secrets.token_urlsafe(24)
        """The page's secret address on its server."""
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        # This counts touches and publishes the state, as on a virtual phone.
        self._app = InstalledApp(app=app)
        self._is_running = False
        self._frames = PaintedFrames()
        self._live_from = 0
        """First frame whose touches are meant for the current run of the app."""
        self._connection = PageConnectionState()
        self._drawn: PageFrame | None = None
        self._shown: PageFrame | None = None
        self._probes: list[Gesture] | None = None
        self._passed_s: float | None = None
        """Time up to which the app's clock was advanced; None while it is stopped."""

    def launch(self, extras: Mapping[str, str]) -> None:
        """(Re)start the app; drop earlier touches that are still on their way."""
        with self._locked():
            self._app.launch(extras, clock_s=0)
            self._is_running = True
            # A touch belongs to the frame under the finger; earlier frames are from the last run.
            self._live_from = self._frames.number + 1
            self._show(redraw=True)

    def stop(self) -> None:
        """Stop the app, which then publishes no state."""
        with self._locked():
            self._is_running = False
            self._show(redraw=True)

    def touch(self, x: float, y: float) -> bool:
        """Tap at (x, y), in [0, 1] of the app's area; return True if it had an effect."""
        return self._feed("touch", x, y) if _is_inside(x, y) else self.miss()

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swipe, in [0, 1] of the app's area; return True if it had an effect."""
        # End the swipe at the edge of the app's area.
        end = min(max(x2, 0.0), 1.0), min(max(y2, 0.0), 1.0)
        is_inside = _is_inside(x1, y1)
        return self._feed("swipe", x1, y1, *end, duration_ms) if is_inside else self.miss()

    def key(self, code: str) -> bool:
        """Press a key such as `KEYCODE_BACK`; return True if the app used it."""
        return self._feed("key", code) if code != "KEYCODE_HOME" else self.miss()

    def text(self, text: str) -> bool:
        """Type text; return True if the app used it."""
        return self._feed("text", text)

    def miss(self) -> bool:
        """Count a touch outside the app or a HOME key, which have no effect."""
        return self._feed("")

    def state(self) -> Mapping[str, Any] | None:
        """Return the state that the app publishes; None if it is not running or was never shown."""
        with self._locked():
            state = self._frames.state
        return None if state is None else dict(json.loads(state))

    def status(self) -> PageStatus:
        """Return the page's current state."""
        with self._locked():
            return self._status()

    def wait(
        self, enough: Callable[[PageStatus], bool], seconds: float, failure: str
    ) -> PageStatus:
        """Wait for a status that is `enough`; after `seconds`, raise DeviceTimeout(`failure`)."""
        end = time.monotonic() + seconds
        with self._locked():
            while not enough(status := self._status()):
                left_s = end - time.monotonic()
                if left_s <= 0:
                    raise DeviceTimeout(f"{self.package}: {failure} (after {seconds:.1f} s)")
                self._changed.wait(left_s)
            return status

    def calibrate(self, on: bool) -> None:
        """Show the calibration pattern instead of the app, or the app again."""
        with self._locked():
            # Keep touches on the pattern separate, because they are not meant for the game.
            self._probes = [] if on else None
            self._live_from = self._frames.number + 1
            self._show(redraw=True)

    def drop(self) -> None:
        """Drop the page's connection; the page reconnects by itself."""
        with self._locked():
            if self._connection.link is not None:
                self._connection.link.end(CloseReason.DROPPED)

    def connect(self, link: PageLink, hello: PageHello) -> tuple[int, bool]:
        """Register a page; return its last handled gesture and whether it replaced a page."""
        with self._locked():
            replaced = self._connection.connect(link, hello)
            self._show(redraw=True)
            return self._connection.handled, replaced

    def disconnect(self, link: PageLink) -> None:
        """Unregister a connection."""
        # Wait without a deadline, so that a hung app does not keep its page.
        with self._changed:
            self._connection.disconnect(link)
            self._changed.notify_all()

    def resize(self, link: PageLink, width: int, height: int) -> None:
        """Record a new size of the page."""
        with self._locked():
            if link is self._connection.link and self._connection.size != (width, height):
                self._connection.size = (width, height)
                self._show(redraw=True)

    def set_visible(self, link: PageLink, visible: bool) -> None:
        """Record that the page was hidden or became visible."""
        with self._locked():
            if link is self._connection.link:
                self._connection.visible = visible
                self._changed.notify_all()

    def gesture(self, link: PageLink, gesture: Gesture) -> int:
        """Handle a gesture once, however often it is sent; return the last handled number."""
        with self._locked():
            # A replaced page may still have gestures on their way.
            if link is not self._connection.link or not self._connection.is_new(gesture):
                return self._connection.handled
            if self._probes is not None:
                self._probes.append(gesture)
                self._changed.notify_all()
            elif gesture.frame < self._live_from:
                log.info("%s: dropped a touch from before the launch", self.package)
            elif gesture.cancelled:
                self.miss()
            elif gesture.is_tap:
                self.touch(gesture.x1, gesture.y1)
            else:
                self.swipe(gesture.x1, gesture.y1, gesture.x2, gesture.y2, gesture.ms)
            return self._connection.handled

    def pass_time(self, now_s: float) -> float:
        """Advance the clock of a visible app; return the seconds until the next call."""
        with self._locked():
            visible = self._probes is None and self._connection.visibility is PageVisibility.VISIBLE
            ticks_now = visible and self._is_running
            tick_ms = int(getattr(self._app.app, "tick_ms", 0)) if ticks_now else 0
            if not tick_ms:
                self._passed_s = None
                return _NO_CLOCK_S
            passed_s = now_s if self._passed_s is None else self._passed_s
            # Whole ticks only; the remainder carries over to the next call, so no time is lost.
            ticks = int((now_s - passed_s) * 1000 / tick_ms)
            self._passed_s = passed_s + ticks * tick_ms / 1000
            used = True  # a crash changes the screen as well
            if ticks:
                with self._ending_on_crash():
                    used = self._app.feed(("tick", ticks * tick_ms))
                if used:
                    self._show(redraw=True)
            return tick_ms / 1000

    def draw(self) -> PageFrame:
        """Draw the newest frame at the page's size."""
        with self._locked():
            assert self._connection.size is not None, "a page sends its size before anything else"
            width, height = self._connection.size
            area = painted_frames.fit(width, height)
            shown = self._picture(area, width, height)
            self._drawn = PageFrame(
                number=self._frames.draw(),
                picture=shown,
                area=area,
                calibrating=self._probes is not None,
            )
            return self._drawn

    def paint(self, link: PageLink, number: int) -> None:
        """Record that the page painted the last drawn frame."""
        with self._locked():
            if link is self._connection.link and self._frames.paint(number):
                self._shown, self._connection.painted = self._drawn, True
                self._changed.notify_all()

    def _feed(self, *event: Any) -> bool:
        """Pass an input to a running app; return whether it had an effect, such as a crash."""
        with self._locked():
            ran = used = self._is_running
            if ran:
                with self._ending_on_crash():
                    used = self._app.feed(event)
            self._show(redraw=used)
            return used

    @contextmanager
    def _ending_on_crash(self) -> Iterator[None]:
        """Stop an app that raises; as on a phone, nothing else is affected."""
        try:
            yield
        except Exception:
            log.exception("%s crashed", self.package)
            self._is_running = False

    def _show(self, *, redraw: bool) -> None:
        """Publish the current state, with a new picture if it changed."""
        ran, state = self._is_running, None
        if ran:
            with self._ending_on_crash():
                state = self._app.published().decode()
        # The app may just have crashed.
        if not self._is_running:
            self._frames.forget()
            redraw = redraw or ran
        self._frames.change(None if self._probes is not None else state, redraw=redraw)
        self._changed.notify_all()
        if redraw and self._connection.link is not None:
            self._connection.link.wake()

    def _picture(self, area: painted_frames.AppArea, width: int, height: int) -> Image:
        if self._probes is not None:
            return locate_page.pattern(width, height, self._frames.number)
        if self._is_running:
            with self._ending_on_crash():
                picture = self._app.draw(area.width, area.height)
                if picture.shape != (area.height, area.width, 3) or picture.dtype != np.uint8:
                    raise ValueError(
                        f"render must return uint8[{area.height}, {area.width}, 3], got "
                        f"{picture.dtype}{list(picture.shape)}"
                    )
                return painted_frames.compose(picture, area, width, height)
        self._frames.forget()  # the app may just have crashed
        return np.zeros((height, width, 3), np.uint8)

    def _status(self) -> PageStatus:
        return PageStatus(
            running=self._is_running,
            visibility=self._connection.visibility,
            connected=self._connection.link is not None,
            size=self._connection.size,
            number=self._frames.number,
            shown=self._shown,
            probes=tuple(self._probes or ()),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; raise DeviceTimeout if a hung app does not release it."""
        if not self._changed.acquire(timeout=self._deadline_s):
            raise DeviceTimeout(
                f"{self.package} did not return from a call within {self._deadline_s:g} s"
            )
        try:
            yield
        finally:
            self._changed.release()


def _is_inside(x: float, y: float) -> bool:
    return 0 <= x <= 1 and 0 <= y <= 1
