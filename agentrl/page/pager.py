"""Decides which phones need a page: those that our app is not installed on."""

from collections.abc import Sequence
from typing import Literal

from agentrl.devices import Device
from agentrl.devices.adb import AdbServer
from agentrl.page.device import PagedDevice
from agentrl.page.server import PageServer
from agentrl.page.tunnel import AdbTunnel
from agentrl.phone.spec import AppSpec, make_apps

Way = Literal["auto", "installed", "page"]


class Pager:
    """Gives phones the pages of some apps; all of one process share a server, and one Pager.

    The server starts with the first phone that needs it.
    """

    def __init__(self, server: AdbServer, apps: Sequence[AppSpec], way: Way = "auto") -> None:
        """Serves nothing yet.

        Args:
            server: that knows the phones.
            apps: to be played; every phone has instances of its own.
            way: `installed` trusts that phones have the apps, `page` shows them as pages whatever
                the phones have, and `auto` does so where one is not installed.
        """
        self._server = server
        self._apps = tuple(apps)
        self._way = way
        self._pages = PageServer()
        self._running = False

    def around(self, device: Device) -> Device:
        """The phone itself where it has the apps, else the phone with their pages.

        Raises:
            DeviceError: it does not say what it has.
            ConfigError: an app does not exist.
        """
        if self._way == "installed":
            return device
        apps = make_apps(self._apps)
        if self._way == "auto":
            listed = device.shell("pm", "list", "packages").split()
            if all(f"package:{app.package}" in listed for app in apps):
                return device
        if not self._running:
            self._pages.start()
            self._running = True
        return PagedDevice(device, AdbTunnel(self._server, device.serial), self._pages, apps)

    def close(self) -> None:
        """Serve no pages any more."""
        if self._running:
            self._pages.stop()
            self._running = False
