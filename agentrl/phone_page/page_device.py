"""A phone that shows our apps in its browser while they run here."""

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentrl.actions.screen_actions import (
    Action,
    Drag,
    Key,
    LongPress,
    PathTouch,
    PointTouch,
    Swipe,
    Type,
)
from agentrl.devices import LeasableDevice, Look, ScreenRegion, Window
from agentrl.devices.forwarding_device import ForwardingDevice
from agentrl.devices.guard.foreground import is_allowed
from agentrl.devices.input.input_commands import Touch, key_code
from agentrl.errors import AppNotInFront, DeviceError, DeviceTimeout
from agentrl.phone_page.page_app import PageApp
from agentrl.phone_page.page_connection_state import PageVisibility
from agentrl.phone_page.page_server import PageServer
from agentrl.phone_page.phone_browser import PhoneBrowser
from agentrl.types import Image
from virtual_phone.apps.app import App

_PAUSE_S = 0.02
_ON_SCREEN_S = 0.3
"""Seconds that a painted frame may take to reach the screen and its captures."""
_NO_TAP_S = 1.0
"""The page never mistakes a touch this long for a tap (`agentrl.phone_page.page_messages`)."""
_LEAVE_KEYS = ("KEYCODE_BACK", "KEYCODE_HOME")


class PageDevice(ForwardingDevice):
    """Wraps another device; implements `agentrl.devices.device.Device`.

    Captures show the real phone's screen, and taps go through its input. The apps run here, and
    their state is read here.
    """

    _device: LeasableDevice

    def __init__(self, device: LeasableDevice, server: PageServer, apps: Sequence[App]) -> None:
        """Serve app instances made for this phone; the browser is opened at the first launch."""
        super().__init__(device)
        self._server = server
        self._browser = PhoneBrowser(device, server)
        self._apps = {app.package: PageApp(app) for app in apps}
        for app in self._apps.values():
            server.add(app)

    def screenshot(self) -> Image:
        """Capture the screen, including everything that the page has painted.

        A painted frame takes a moment to reach the screen, so a capture that does not show it yet
        is retried for that long. After that, something else may cover the page.
        """
        end = time.monotonic() + _ON_SCREEN_S
        app = self._browser.app
        while True:
            status, asked_s = None if app is None else app.status(), time.monotonic()
            capture = self._device.screenshot()
            if status is None or status.visibility is not PageVisibility.VISIBLE:
                return capture
            if self._browser.shows(capture, status) or asked_s >= end:
                return capture

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        """Capture the screen; the package is None because the front app depends on the page."""
        return self.screenshot(), None

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        """Perform an action; the app in front gets keys and text first.

        If a touch begins outside the page in front, it is counted for the app but not sent, because
        the browser's own bars lead out of the game and into the owner's settings. BACK is never
        sent to the browser, which would navigate; an unused BACK or HOME leaves the app.
        """
        if isinstance(action, Key | Type) and (app := self._in_front()) is not None:
            if isinstance(action, Type):
                app.text(action.text)
            elif not app.key(code := key_code(action.name)) and code in _LEAVE_KEYS:
                self._device.perform(Key("HOME"))
            return
        if isinstance(action, PointTouch | PathTouch):
            # Only the start of a touch matters, as the page that receives it gets the whole touch.
            page = self._browser.page_region()
            is_beside = page is not None and not page.contains(*action.points[0])
            if is_beside and (app := self._in_front()) is not None:
                app.miss()
                return
            action, duration_s = _on_page(action, duration_s)
        self._device.perform(action, duration_s)

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """(Re)start an app and wait until the screen shows it; opens the browser if needed."""
        app = self._apps.get(package)
        if app is None or activity not in app.activities:
            apps = (f"{h.package}/{name}" for h in self._apps.values() for name in h.activities)
            known = ", ".join(dict.fromkeys(apps)) or "none"
            raise DeviceError(
                f"{self.serial}: {package}/{activity} is not an app of this phone; choose from "
                f"{known}"
            )
        end = time.monotonic() + self.deadlines.launch_s
        try:
            app.launch(extras)
        except ValueError as error:
            raise DeviceError(f"{self.serial}: {package} rejects its extras: {error}") from error
        # A page already in front shows the app again by itself.
        if self._in_front() is not app:
            self._browser.open(app, end)
        self._wait_until_seen(app, end)

    def stop(self, package: str) -> None:
        """Stop an app; its page stays open and turns black."""
        if package in self._apps:
            self._apps[package].stop()
        else:
            self._device.stop(package)

    def focus(self) -> str | None:
        """Return the package in front; None also if the browser's page is disconnected."""
        return self._browser.front()

    def window(self) -> Window:
        """Return the window that receives touches; for the browser, the app shown by its page."""
        return self._browser.window()

    def app_state(self, package: str) -> Mapping[str, Any]:
        """Return the state that an app publishes."""
        if package not in self._apps:
            return self._device.app_state(package)
        state = self._apps[package].state()
        if state is None:
            raise DeviceError(f"{self.serial}: {package} publishes no state")
        return state

    def look(self, package: str) -> Look:
        """Return the state that an app publishes, and the package in front."""
        return Look(state=self._published(package), front=self.focus())

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        """Perform an action; return the state before and a look right after it."""
        if only_in is not None and not is_allowed(front := self.focus(), only_in):
            raise AppNotInFront(f"{self.serial}: {front or 'nothing'} is in front")
        before = Look(state=self._published(package))
        self.perform(action)
        return before, self.look(package)

    def app_area(self) -> ScreenRegion:
        """Return the part of the screen that shows the last launched app, without status bar."""
        region = self._browser.app_region()
        if region is None and self._browser.app is not None:
            self.screenshot()  # capturing locates a page that has moved
            region = self._browser.app_region()
        if region is None:
            raise DeviceError(f"{self.serial}: the screen does not show the page; launch the app")
        return region

    def claim(self, token: int) -> None:
        """Make the phone refuse commands sent under any other lease."""
        self._device.claim(token)

    def set_lease(self, token: int | None) -> None:
        """Send all further commands under this lease; None sends them without a lease check."""
        self._device.set_lease(token)

    def reconnect(self) -> None:
        """Make the phone ready again and reopen the tunnel; callers must `launch` the app again."""
        self._device.reconnect()
        if self._browser.app is not None:
            self._browser.open_tunnel()

    def close(self) -> None:
        """Remove the pages and close the phone."""
        for app in self._apps.values():
            self._server.remove(app)
        # The phone may be gone, and so is its tunnel.
        with contextlib.suppress(DeviceError):
            self._browser.close()
        self._device.close()

    def _published(self, package: str) -> Mapping[str, Any] | None:
        app = self._apps.get(package)
        return None if app is None else app.state()

    def _in_front(self) -> PageApp | None:
        """Return the app whose page is in front, if any."""
        app = self._browser.app
        return app if app is not None and self.focus() == app.package else None

    def _wait_until_seen(self, app: PageApp, end: float) -> None:
        """Wait until the app is in front and the screen shows what its page painted."""
        while True:
            status = app.wait(
                lambda status: status.settled and status.running,
                end - time.monotonic(),
                f"{self.serial}: the page did not paint the app",
            )
            front = self.focus()
            if front == app.package and self._browser.shows(self._device.screenshot(), status):
                return
            if time.monotonic() >= end:
                raise DeviceTimeout(
                    f"{self.serial}: {app.package} was started and {front} is in front, but the "
                    f"screen does not show the app after {self.deadlines.launch_s:g} s; is the "
                    "page covered?"
                )
            time.sleep(_PAUSE_S)


def _on_page(action: Touch, duration_s: float | None) -> tuple[Touch, float | None]:
    """Convert an action to a touch that a page recognizes, and its duration."""
    match action:
        case LongPress(x, y):  # the app sees a swipe in place
            held_s = action.duration_s if duration_s is None else duration_s
            return Swipe(x, y, x, y), max(held_s, _NO_TAP_S)
        case Drag(x1, y1, x2, y2):  # a slow swipe, because the phone itself sees nothing to pick up
            return Swipe(x1, y1, x2, y2), action.duration_s if duration_s is None else duration_s
    return action, duration_s
