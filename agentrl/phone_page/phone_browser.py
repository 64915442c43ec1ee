"""Opens a page in a phone's browser, and locates it on the screen."""

import math
import time

from agentrl.devices import Device, ScreenRegion, Tap, Window
from agentrl.devices.open_url import open_url
from agentrl.errors import DeviceError, DeviceTimeout
from agentrl.phone_page import locate_page
from agentrl.phone_page.locate_page import PagePosition
from agentrl.phone_page.page_app import PageApp, PageStatus
from agentrl.phone_page.page_connection_state import PageVisibility
from agentrl.phone_page.page_server import PageServer
from agentrl.types import Image

_PAUSE_S = 0.02
_LARGEST_ERROR = 0.02
"""Largest error of a touch's position, as a fraction of the app's area."""


class PhoneBrowser:
    """One phone's browser, showing one app's page."""

    def __init__(self, device: Device, server: PageServer) -> None:
        self.app: PageApp | None = None
        """The app whose page was last opened."""
        self._device = device
        self._server = server
        self._has_tunnel = False
        self._package: str | None = None
        self._position: PagePosition | None = None
        self._size: tuple[int, int] | None = None
        """The page's own size when it was located."""

    def open(self, app: PageApp, end: float) -> None:
        """Open the page of an app in full screen and locate it, by `end` (monotonic seconds)."""
        self.app = None
        app.calibrate(True)
        try:
            self.open_tunnel()
            open_url(self._device, self._server.url(app))
            self._find(app, end)
            self._touch(app, end)
            # Wait until the browser's bars have slid away and the page stops growing.
            before = self._find(app, end)
            while (now := self._find(app, end)) != before:
                if time.monotonic() >= end:
                    raise DeviceTimeout(f"{self._device.serial}: the page keeps moving")
                before = now
        finally:
            app.calibrate(False)
        # Any browser may have opened the page; the package in front is that browser.
        self._package = self._device.focus()
        self.app = app

    def open_tunnel(self) -> None:
        """Open the tunnel; call this again whenever the phone reconnects."""
        self._device.reverse(self._port, self._port)
        self._has_tunnel = True

    def close(self) -> None:
        """Close the tunnel; the page stays open."""
        if self._has_tunnel:
            self._device.reverse_remove(self._port)

    def front(self) -> str | None:
        """Return the package in front: the app's own if the browser shows its page.

        None also if the browser is in front but the page is disconnected, because the phone may
        then show anything, and the app does not count as left.
        """
        front = self._device.focus()
        if self.app is None or front is None or front != self._package:
            return front
        status = self.app.status()
        if status.visibility is PageVisibility.LOST:
            return None
        shows = status.running and status.visibility is PageVisibility.VISIBLE
        return self.app.package if shows else front

    def window(self) -> Window:
        """Return the window in front; the browser's own window is resolved as in `front`."""
        window = self._device.window()
        is_browsers = window.kind == "foreign_app" and window.package == self._package
        if self.app is None or not is_browsers:
            return window
        front = self.front()
        if front is None:
            return Window(kind="nothing_in_front", package="")
        return Window(kind="foreign_app", package=front) if front == self.app.package else window

    def shows(self, capture: Image, status: PageStatus) -> bool:
        """Return whether a capture of the screen shows the page's last painted frame."""
        if self._position is None or status.shown is None:
            return False
        page = status.shown.picture
        if self._size == status.size and self._position.shows(capture, page):
            return True
        if self._size == status.size or status.size != (page.shape[1], page.shape[0]):
            return False
        # The page may have moved, because the phone was rotated or bars came back.
        found = locate_page.find_moved_page(capture, page, self._position.deviation)
        if found is not None:
            self._position, self._size = found, status.size
        return found is not None

    def page_region(self) -> ScreenRegion | None:
        """Return the page's part of the screen; None if unknown."""
        if self.app is None or self._position is None or self.app.status().size != self._size:
            return None
        width, height = self._device.size()
        position = self._position
        return ScreenRegion(
            left=position.left / width,
            top=position.top / height,
            right=(position.left + position.width) / width,
            bottom=(position.top + position.height) / height,
        )

    def app_region(self) -> ScreenRegion | None:
        """Return the app's part of the screen; None if unknown."""
        page, shown = self.page_region(), self.app.status().shown if self.app else None
        if page is None or shown is None:
            return None
        height, width = shown.picture.shape[:2]
        area = shown.area
        left, top = page.to_screen(area.left / width, area.top / height)
        right, bottom = page.to_screen(
            (area.left + area.width) / width, (area.top + area.height) / height
        )
        return ScreenRegion(left=left, top=top, right=right, bottom=bottom)

    @property
    def _port(self) -> str:
        return f"tcp:{self._server.port}"

    def _find(self, app: PageApp, end: float) -> PagePosition:
        """Locate the pattern that the page shows."""
        serial = self._device.serial
        while True:
            status = app.wait(
                lambda status: status.settled,
                end - time.monotonic(),
                f"{serial}: the browser was opened but the page did not answer; is the browser "
                "showing a prompt, or is the tunnel closed?",
            )
            capture = self._device.screenshot()
            assert status.shown is not None
            found = locate_page.find_pattern(capture, status.shown.picture)
            if found is not None:
                self._position, self._size = found, status.size
                return found
            if time.monotonic() >= end:
                raise DeviceTimeout(
                    f"{serial}: the page reports that it is visible, but it is not on the screen; "
                    "does a dialog cover it?"
                )
            time.sleep(_PAUSE_S)

    def _touch(self, app: PageApp, end: float) -> None:
        """Touch the middle of the pattern, which lets the page enter full screen."""
        # Set only to compute the region, because the phone has no app until the page has settled.
        self.app = app
        middle = self.app_region()
        self.app = None
        assert middle is not None, "it was just located"
        self._device.perform(Tap(*middle.to_screen(0.5, 0.5)))
        status = app.wait(
            lambda status: bool(status.probes),
            end - time.monotonic(),
            f"{self._device.serial}: a tap did not arrive at the page; does the phone allow input "
            "over adb (USB debugging, security settings)?",
        )
        x, y = status.probes[0].x1, status.probes[0].y1
        if math.dist((x, y), (0.5, 0.5)) > _LARGEST_ERROR:
            raise DeviceError(
                f"{self._device.serial}: a tap on the middle of the page arrived at ({x:.3f}, "
                f"{y:.3f}) of the page; was the phone just rotated?"
            )
