"""Shows our apps in real phones' browsers, so that nothing has to be installed on the phones.

An app runs in this process (`PageApp`), `PageServer` serves its page, the phone reaches it through
`adb reverse`, and `PageDevice` is that phone as a `Device`. `PageAssigner` decides which phones
need a page, and starts the web server for the first of them.
"""

import threading
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from agentrl import extras, user_code
from agentrl.devices import LeasableDevice
from agentrl.devices.adb.app_commands import has_package
from agentrl.devices.device_sources import phone_errors
from agentrl.errors import ConfigError
from virtual_phone.phones_spec import AppSpec, make_apps

_PUBLIC = {
    "PageServer": "agentrl.phone_page.page_server",
    "PageApp": "agentrl.phone_page.page_app",
    "PageDevice": "agentrl.phone_page.page_device",
    "PageVisibility": "agentrl.phone_page.page_connection_state",
    "PageStatus": "agentrl.phone_page.page_app",
}

__all__ = ["PageApp", "PageAssigner", "PageDevice", "PageServer", "PageStatus", "PageVisibility"]

if TYPE_CHECKING:
    from agentrl.phone_page.page_app import PageApp, PageStatus
    from agentrl.phone_page.page_connection_state import PageVisibility
    from agentrl.phone_page.page_device import PageDevice
    from agentrl.phone_page.page_server import PageServer


AppDelivery = Literal["auto", "installed", "page"]


class PageAssigner:
    """Wraps phones so that they show some apps on pages; one assigner and server per process.

    The server starts when the first phone needs it. Thread-safe.
    """

    def __init__(self, apps: Sequence[AppSpec], delivery: AppDelivery = "auto") -> None:
        """Choose apps; nothing is served yet.

        Args:
            apps: apps to show; each phone gets its own instances.
            delivery: `installed` assumes that phones have the apps, `page` always shows them as
                pages, and `auto` shows them as pages on phones that lack any of them.
        """
        self._apps = tuple(apps)
        self._delivery = delivery
        self._pages: PageServer | None = None
        self._lock = threading.Lock()

    def wrap(self, device: LeasableDevice) -> LeasableDevice:
        """Return the phone itself if it has the apps, else the phone with their pages."""
        if self._delivery == "installed":
            return device
        with phone_errors():
            apps = make_apps(self._apps, user_code.load)
        # Ask each phone, since virtual phones have the apps and an owner may have installed them.
        if self._delivery == "auto" and all(has_package(device, app.package) for app in apps):
            return device
        page_device: type[PageDevice] = _load("PageDevice")
        return page_device(device, self._server(), apps)

    def close(self) -> None:
        """Stop serving pages."""
        with self._lock:
            if self._pages is not None:
                self._pages.stop()
                self._pages = None

    def _server(self) -> "PageServer":
        with self._lock:
            if self._pages is None:
                page_server: type[PageServer] = _load("PageServer")
                self._pages = page_server()
                self._pages.start()
            return self._pages


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'agentrl.phone_page' has no attribute {name!r}")
    return _load(name)


def _load(name: str) -> Any:
    """Import a public class whose module needs a web server."""
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "websockets"):
            raise
        raise ConfigError(
            f"showing apps on real phones through a page needs {error.name}, which is not "
            f"installed; run: {extras.GET_PAGE}"
        ) from error
