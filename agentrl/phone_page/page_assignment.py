"""Decides which phones need a page: those that our app is not installed on."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from agentrl import phone_page
from agentrl.devices import Lendable
from agentrl.devices.adb.app_launch import has_package
from agentrl.virtual_phone.spec import AppSpec, make_apps

if TYPE_CHECKING:
    from agentrl.phone_page.page_server import PageServer

Way = Literal["auto", "installed", "page"]


class Pager:
    """Gives phones the pages of some apps; all of one process share a server, and one Pager.

    The server starts with the first phone that needs it. Safe for threads.
    """

    def __init__(self, apps: Sequence[AppSpec], way: Way = "auto") -> None:
        """Serves nothing yet.

        Args:
            apps: to be played; every phone has instances of its own.
            way: `installed` trusts that phones have the apps, `page` shows them as pages whatever
                the phones have, and `auto` does so where one is not installed.
        """
        self._apps = tuple(apps)
        self._way = way
        self._pages: PageServer | None = None
        self._lock = threading.Lock()

    def around(self, device: Lendable) -> Lendable:
        """The phone itself where it has the apps, else the phone with their pages.

        Raises:
            DeviceError: it does not say what it has.
            ConfigError: an app does not exist, or nothing that serves pages is installed.
        """
        if self._way == "installed":
            return device
        apps = make_apps(self._apps)
        if self._way == "auto" and all(has_package(device, app.package) for app in apps):
            return device
        return phone_page.PagedDevice(device, self._server(), apps)

    def close(self) -> None:
        """Serve no pages any more."""
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
