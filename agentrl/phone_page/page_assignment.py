"""Decides which phones need a page: those without the app installed."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from agentrl import phone_page
from agentrl.devices import LeasableDevice
from agentrl.devices.adb.app_commands import has_package
from agentrl.virtual_phone.phones_spec import AppSpec, make_apps

if TYPE_CHECKING:
    from agentrl.phone_page.page_server import PageServer

AppDelivery = Literal["auto", "installed", "page"]


class PageAssigner:
    """Wraps phones so that they show some apps on pages; one assigner and server per process.

    The server starts with the first phone that needs it. Thread-safe.
    """

    def __init__(self, apps: Sequence[AppSpec], way: AppDelivery = "auto") -> None:
        """Serves nothing yet.

        Args:
            apps: each phone gets its own instances.
            way: `installed` assumes that phones have the apps, `page` always shows them as pages,
                and `auto` does so if one of them is not installed.
        """
        self._apps = tuple(apps)
        self._way = way
        self._pages: PageServer | None = None
        self._lock = threading.Lock()

    def wrap(self, device: LeasableDevice) -> LeasableDevice:
        """The phone itself if it has the apps, else the phone with their pages.

        Raises:
            DeviceError: the phone failed.
            ConfigError: an app does not exist, or `agentrl-screens[page]` is not installed.
        """
        if self._way == "installed":
            return device
        apps = make_apps(self._apps)
        if self._way == "auto" and all(has_package(device, app.package) for app in apps):
            return device
        return phone_page.PagedDevice(device, self._server(), apps)

    def close(self) -> None:
        """Stop serving pages."""
        with self._lock:
            if self._pages is not None:
                self._pages.stop()
                self._pages = None

    def _server(self) -> "PageServer":
        with self._lock:
            if self._pages is None:
                server = phone_page.PageServer()
                server.start()
                self._pages = server
            return self._pages
