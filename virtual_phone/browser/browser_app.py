"""Chrome on the virtual phone: `am start -a android.intent.action.VIEW -d URL` opens a page."""

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from virtual_phone.apps.app import AppHost, View
from virtual_phone.apps.system_packages import ACTIVITIES, BROWSER
from virtual_phone.browser import chromium
from virtual_phone.browser.browser_tab import BrowserTab, all_closed, is_web
from virtual_phone.browser.devtools_socket import DevToolsSocket
from virtual_phone.types import Image

_MAX_EXCESS_PX = 8
"""A frame has whole CSS pixels, fewer than this many more physical pixels than the screen."""


class BrowserApp:
    """A browser whose pages are real: an app of its own, live (see `LiveApp`).

    Each launch opens an empty profile. Pages reach the phone's own ports, such as those of
    `adb reverse`, and nothing else, unless `hosts` allows it. Other programs inspect the page as
    on a real phone, at `localabstract:chrome_devtools_remote`.

    Args:
        hosts: patterns of hosts that pages may reach through this machine's network, such as
            `*.example.org`.
        deadline_s: how long a page may take to react before it counts as not responding.

    Raises:
        ValueError: the hosts are not a list, or the deadline is not positive.
        SettingError: Chromium is not installed.
    """

    package = BROWSER
    activity = ACTIVITIES[BROWSER]
    schemes = ("http", "https")

    def __init__(self, hosts: Sequence[str] = (), deadline_s: float = 20.0) -> None:
        if isinstance(hosts, str):
            raise ValueError(f"hosts={hosts!r}: must be a list")
        if deadline_s <= 0:
            raise ValueError(f"deadline_s={deadline_s:g}: must be positive")
        chromium.executable()
        self._hosts, self._deadline_s = tuple(hosts), deadline_s
        self._host: AppHost | None = None
        self._tab: BrowserTab | None = None
        self._socket: DevToolsSocket | None = None
        self._state: dict[str, str] = {}
        self._size = (0, 0)

    def attach(self, host: AppHost) -> None:
        """Receive the phone's network and screen; called once."""
        self._host = host

    def launch(self, extras: Mapping[str, str]) -> None:
        """Open the URL in `data`, or an empty page, in a new profile.

        Raises:
            ValueError: the URL has another scheme.
        """
        assert self._host is not None, "the app is not installed"
        url = extras.get("data", "about:blank")
        if not is_web(url):
            raise ValueError(f"{url[:100]}: the browser opens only http and https")
        self.close()
        self._size = self._host.area
        tab = self._tab = BrowserTab(self._host, url, self._hosts, self._deadline_s)
        self._socket = DevToolsSocket(self._host.network, lambda: tab.target)

    def close(self) -> None:
        """Close the page."""
        if self._socket is not None:
            self._socket.close()
        if self._tab is not None:
            self._state = self._described(self._tab)
            self._tab.close()
            self._tab = None

    async def shut_down(self) -> None:
        """End the Chromium of this process."""
        self.close()
        await all_closed()
        await chromium.close_all()

    def touch(self, x: float, y: float) -> bool:
        """Tap the page, which changes later."""
        if self._tab is not None:
            self._tab.tap(x, y)
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swipe on the page, which changes later."""
        if self._tab is not None:
            self._tab.swipe(x1, y1, x2, y2, duration_ms)
        return False

    def key(self, code: str) -> bool:
        """Press a key; BACK leaves the app on the first page of the history."""
        if self._tab is None:
            return False
        if code == "KEYCODE_BACK":
            self._tab.go_back()
        else:
            self._tab.press(code)
        return True

    def text(self, text: str) -> bool:
        """Type text into the focused field."""
        if self._tab is not None:
            self._tab.type_text(text)
        return False

    def clear_text(self) -> bool:
        """Delete the text of the focused field."""
        if self._tab is not None:
            self._tab.clear_text()
        return False

    def render(self, width: int, height: int) -> Image:
        """Return the page's last frame, uint8[height, width, 3]; white before the first one."""
        tab = self._tab
        if tab is not None and (width, height) != self._size:
            self._size = (width, height)
            tab.resize()
        if tab is None or tab.frame is None:
            return np.full((height, width, 3), 255, np.uint8)
        missing = (tab.frame.shape[0] - height, tab.frame.shape[1] - width)
        if all(0 <= pixels < _MAX_EXCESS_PX for pixels in missing):
            return np.ascontiguousarray(tab.frame[:height, :width])
        return np.asarray(cv2.resize(tab.frame, (width, height)), np.uint8)

    async def views(self) -> Sequence[View]:
        """Return the views of the page."""
        return [] if self._tab is None else await self._tab.views()

    def state(self) -> Mapping[str, Any]:
        """Return the page's URL and title, also after it has ended."""
        return self._state if self._tab is None else self._described(self._tab)

    @staticmethod
    def _described(tab: BrowserTab) -> dict[str, str]:
        return {"url": tab.url, "title": tab.title}
