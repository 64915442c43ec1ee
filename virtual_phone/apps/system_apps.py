"""The phone's preinstalled apps, which show little more than their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from virtual_phone.apps.app import View
from virtual_phone.system import drawing
from virtual_phone.types import Image

LAUNCHER = "org.agentrl.launcher"
LAUNCHER_ACTIVITY = ".Home"
SETTINGS = "com.android.settings"
BROWSER = "com.android.chrome"
DIALER = "com.android.dialer"
ACTIVITIES = {
    SETTINGS: ".Settings",
    BROWSER: "com.google.android.apps.chrome.Main",
    DIALER: "com.android.incallui.InCallActivity",
}
"""System packages that can be started, and their activities."""
PACKAGES = (
    "android",
    BROWSER,
    DIALER,
    "com.android.inputmethod.latin",
    SETTINGS,
    "com.android.shell",
    "com.android.systemui",
    LAUNCHER,
)
"""System packages."""
SYSTEM_VERSION = ("14", 34)
"""Version name and version code of the system packages."""
KEYBOARD_PACKAGE = "com.android.adbkeyboard"
"""ADBKeyboard, which real phones also need to type arbitrary text."""


def apk_path(package: str) -> str:
    """Return the path of a package's APK."""
    if package in PACKAGES:
        return f"/system/app/{package}/{package}.apk"
    return f"/data/app/{package}/base.apk"


class TextPage:
    """An app that shows a title and some lines of text, and ignores touches."""

    def __init__(self, package: str, activity: str | None = None) -> None:
        self.package = package
        self.activity = activity or ACTIVITIES.get(package, ".Main")
        self.label = package.rpartition(".")[2]
        self._lines: list[str] = []

    def launch(self, extras: Mapping[str, str]) -> None:
        """Show the values of the extras."""
        self._lines = [value for _, value in sorted(extras.items()) if value]

    def touch(self, x: float, y: float) -> bool:
        """Ignore the touch."""
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Ignore the swipe."""
        return False

    def key(self, code: str) -> bool:
        """Leave all keys to the phone."""
        return False

    def render(self, width: int, height: int) -> Image:
        """Draw the title and the lines, uint8[height, width, 3]."""
        return drawing.page(width, height, self.label, self._lines)

    def views(self) -> Sequence[View]:
        """Return the title and the lines as text views."""
        texts = (self.label, *self._lines)
        return [
            View(bounds=_row(row), text=text, kind="android.widget.TextView")
            for row, text in enumerate(texts[: drawing.PAGE_ROWS])
        ]

    def state(self) -> Mapping[str, Any]:
        """Return the lines."""
        return {"lines": list(self._lines)}


def _row(row: int) -> tuple[float, float, float, float]:
    return 0.0, row / drawing.PAGE_ROWS, 1.0, (row + 1) / drawing.PAGE_ROWS
