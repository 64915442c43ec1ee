"""An app whose screen is a page: it runs here, and a phone's browser shows what it draws."""

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
from agentrl.phone_page import calibration, page_images
from agentrl.phone_page.app_session import Played
from agentrl.phone_page.page_images import Drawn
from agentrl.phone_page.page_messages import Gesture, Hello
from agentrl.phone_page.page_slot import Close, Link, Seat, Sight
from agentrl.phone_page.painted_frames import Frames
from agentrl.types import Image
from agentrl.virtual_phone.apps.app import App

log = logging.getLogger(__name__)

_STILL_S = 0.05
"""How often an app in which no time passes is asked whether it does now."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Status:
    """What is known of a page at one moment."""

    running: bool
    """Whether the app was launched, and neither stopped nor crashed since."""
    sight: Sight
    connected: bool
    size: tuple[int, int] | None
    """Width and height in its screen's pixels; None before its first connection."""
    number: int
    """Of the newest frame."""
    shown: Drawn | None
    """What the page has painted last."""
    probes: tuple[Gesture, ...]
    """What touched the pattern since calibration began."""

    @property
    def settled(self) -> bool:
        """Whether the page is in sight and shows the newest frame."""
        newest = self.shown is not None and self.shown.number == self.number
        return newest and self.sight is Sight.VISIBLE


class PagedApp:
    """One app and the page that it is shown on; safe for threads.

    It publishes as a virtual phone does: a state counts once its picture is on the screen, which
    is when the page says that it has painted it.
    """

    def __init__(self, app: App, *, deadline_s: float = 5.0) -> None:
        """An app that has not been launched, on a page that is not open.

        Args:
            app: what runs; nobody else may call it.
            deadline_s: how long a call waits for the app to come back from another.
        """
        self.package = app.package
        self.activities: tuple[str, ...] = (app.activity, *getattr(app, "activities", ()))
        self.token = secrets.token_urlsafe(24)
        """The page's address on its server; who does not know it gets nothing."""
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        self._played = Played(app)
        self._frames = Frames()
        self._live_from = 0
        """The first frame whose touches are meant for the app as it is now."""
        self._seat = Seat()
        self._drawn: Drawn | None = None
        self._shown: Drawn | None = None
        self._probes: list[Gesture] | None = None
        self._passed_s: float | None = None
        """Up to when time has passed in the app; None while it stands still."""

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start afresh; touches of before that are still on their way come to nothing.

        Raises:
            ValueError: an extra that the app does not take.
            DeviceTimeout: the app hangs, as in every other call.
        """
        with self._held():
            self._played.launch(extras)
            self._live_from = self._frames.number + 1
            self._show(redraw=True)

    def stop(self) -> None:
        """Stop the app; its published state goes with it."""
        with self._held():
            self._played.running = False
            self._show(redraw=True)

    def touch(self, x: float, y: float) -> bool:
        """A tap at (x, y), in [0, 1] of the app's area; True if it had an effect."""
        return self._do(lambda: self._played.touch(x, y))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """A swipe, in [0, 1] of the app's area; True if it had an effect."""
        return self._do(lambda: self._played.swipe(x1, y1, x2, y2, duration_ms))

    def key(self, code: str) -> bool:
        """A key such as `KEYCODE_BACK`; True if the app used it."""
        return self._do(lambda: self._played.key(code))

    def text(self, text: str) -> bool:
        """Typed text; True if the app used it."""
        return self._do(lambda: self._played.text(text))

    def miss(self) -> None:
        """Count a touch of the phone's screen that landed beside the page: it has no effect."""
        self._do(self._played.miss)

    def state(self) -> Mapping[str, Any] | None:
        """What the app publishes; None where it does not run or no page has shown it yet."""
        with self._held():
            state = self._frames.state
        return None if state is None else dict(json.loads(state))

    def status(self) -> Status:
        """What is known of the page now."""
        with self._held():
            return self._status()

    def wait(self, enough: Callable[[Status], bool], seconds: float, complaint: str) -> Status:
        """Wait for the page.

        Raises:
            DeviceTimeout: what was waited for did not come in time; the complaint says what.
        """
        end = time.monotonic() + seconds
        with self._held():
            while not enough(status := self._status()):
                left_s = end - time.monotonic()
                if left_s <= 0:
                    raise DeviceTimeout(f"{self.package}: {complaint} within {seconds:.1f} s")
                self._changed.wait(left_s)
            return status

    def calibrate(self, on: bool) -> None:
        """Show the pattern that a page is found by in the place of the app, or no longer."""
        with self._held():
            self._probes = [] if on else None
            self._live_from = self._frames.number + 1
            self._show(redraw=True)

    def drop(self) -> None:
        """Drop the page's connection; the page comes back by itself."""
        with self._held():
            if self._seat.link is not None:
                self._seat.link.end(Close.DROPPED)

    def connect(self, link: Link, hello: Hello) -> tuple[int, bool]:
        """A page has connected.

        Returns:
            The number of its last gesture that was handled, and whether another page had to go.
        """
        with self._held():
            replaced = self._seat.take(link, hello)
            self._show(redraw=True)
            return self._seat.handled, replaced

    def disconnect(self, link: Link) -> None:
        """A connection is over."""
        with self._changed:  # without a deadline: an app that hangs must not keep its page
            self._seat.leave(link)
            self._changed.notify_all()

    def resize(self, link: Link, width: int, height: int) -> None:
        """The page has this size now."""
        with self._held():
            if link is self._seat.link and self._seat.size != (width, height):
                self._seat.size = (width, height)
                self._show(redraw=True)

    def look(self, link: Link, visible: bool) -> None:
        """The page was hidden, or has come back to the front."""
        with self._held():
            if link is self._seat.link:
                self._seat.visible = visible
                self._changed.notify_all()

    def gesture(self, link: Link, gesture: Gesture) -> int:
        """A gesture on the page: handled once, however often it is sent.

        Returns:
            The number of the last gesture that was handled.

        Raises:
            BadMessage: one before it never came.
        """
        with self._held():
            if link is self._seat.link and self._seat.is_new(gesture):
                self._take(gesture)
            return self._seat.handled

    def pass_time(self, now_s: float) -> float:
        """Let time pass in the app, while its page is to be seen and no pattern is on it.

        Args:
            now_s: by the clock of whoever calls; the whole ticks since the last call pass.

        Returns:
            Seconds until it should be called again.
        """
        with self._held():
            seen = self._probes is None and self._seat.sight is Sight.VISIBLE
            tick_ms = self._played.tick_ms() if seen else 0
            if not tick_ms:
                self._passed_s = None
                return _STILL_S
            passed_s = now_s if self._passed_s is None else self._passed_s
            ticks = int((now_s - passed_s) * 1000 / tick_ms)
            self._passed_s = passed_s + ticks * tick_ms / 1000
            if ticks and self._played.tick(ticks * tick_ms):
                self._show(redraw=True)
            return tick_ms / 1000

    def draw(self) -> Drawn:
        """The newest frame, of the page's size."""
        with self._held():
            assert self._seat.size is not None, "a page tells its size before anything else"
            width, height = self._seat.size
            area = page_images.fit(width, height)
            shown = self._picture(area, width, height)
            self._drawn = Drawn(
                number=self._frames.draw(),
                picture=shown,
                area=area,
                calibrating=self._probes is not None,
            )
            return self._drawn

    def paint(self, link: Link, number: int) -> None:
        """The page has painted the frame that was drawn last."""
        with self._held():
            if link is self._seat.link and self._frames.paint(number):
                self._shown, self._seat.painted = self._drawn, True
                self._changed.notify_all()

    def _do(self, act: Callable[[], bool]) -> bool:
        with self._held():
            done = act()
            self._show(redraw=done)
            return done

    def _take(self, gesture: Gesture) -> None:
        if self._probes is not None:
            self._probes.append(gesture)
            self._changed.notify_all()
        elif gesture.frame < self._live_from:
            log.info("%s: a touch from before the launch comes to nothing", self.package)
        elif gesture.cancelled:
            self.miss()
        elif gesture.is_tap:
            self.touch(gesture.x1, gesture.y1)
        else:
            self.swipe(gesture.x1, gesture.y1, gesture.x2, gesture.y2, gesture.ms)

    def _show(self, *, redraw: bool) -> None:
        """Publish the state as it is, with its picture."""
        ran = self._played.running
        state = self._played.published()
        if not self._played.running:
            self._frames.forget()
            redraw = redraw or ran
        self._frames.change(None if self._probes is not None else state, redraw=redraw)
        self._changed.notify_all()
        if redraw and self._seat.link is not None:
            self._seat.link.wake()

    def _picture(self, area: page_images.Area, width: int, height: int) -> Image:
        if self._probes is not None:
            return calibration.pattern(width, height, self._frames.number)
        app = self._played.render(area.width, area.height)
        if app is None:
            self._frames.forget()  # it may have crashed just now
            return np.zeros((height, width, 3), np.uint8)
        return page_images.compose(app, area, width, height)

    def _status(self) -> Status:
        return Status(
            running=self._played.running,
            sight=self._seat.sight,
            connected=self._seat.link is not None,
            size=self._seat.size,
            number=self._frames.number,
            shown=self._shown,
            probes=tuple(self._probes or ()),
        )

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The lock, which an app that hangs keeps."""
        if not self._changed.acquire(timeout=self._deadline_s):
            raise DeviceTimeout(
                f"{self.package} did not come back from a call within {self._deadline_s:g} s"
            )
        try:
            yield
        finally:
            self._changed.release()
