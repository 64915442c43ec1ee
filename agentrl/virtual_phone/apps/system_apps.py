"""What comes with a phone: packages that do little more than stand in front."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.types import Image
from agentrl.virtual_phone.apps.app import View
from agentrl.virtual_phone.system import drawing

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
"""Packages that can be started, and their activities."""
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
"""Those of the system."""
KEYBOARD_PACKAGE = "com.android.adbkeyboard"
"""Installed, as it has to be on a real phone before it can type what no key stands for."""


class Page:
    """A page with a name and some lines, on which touches do nothing."""

    def __init__(self, package: str, activity: str | None = None, label: str = "") -> None:
        """Nothing but its name yet.

        Args:
            package: the app's.
            activity: the app's; that of a package of the system if it is one.
            label: to show; the last part of the package's name if there is none.
        """
        self.package = package
        self.activity = activity or ACTIVITIES.get(package, ".Main")
        self.label = label or package.rpartition(".")[2]
        self._lines: list[str] = []

    def launch(self, extras: Mapping[str, str]) -> None:
        """Show the extras."""
        self._lines = [value for _, value in sorted(extras.items()) if value]

    def touch(self, x: float, y: float) -> bool:
        """Nothing happens."""
        return False

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Nothing happens."""
        return False

    def key(self, code: str) -> bool:
        """BACK and HOME are left to the phone."""
        return False

    def render(self, width: int, height: int) -> Image:
        """The name and the lines, uint8[height, width, 3]."""
        return drawing.page(width, height, self.label, self._lines)

    def views(self) -> Sequence[View]:
        """The name and the lines."""
        texts = (self.label, *self._lines)
        return [
            View(bounds=_row(row), text=text, kind="android.widget.TextView")
            for row, text in enumerate(texts[: drawing.PAGE_ROWS])
        ]

    def state(self) -> Mapping[str, Any]:
        """Its lines."""
        return {"lines": list(self._lines)}


def _row(row: int) -> tuple[float, float, float, float]:
    return 0.0, row / drawing.PAGE_ROWS, 1.0, (row + 1) / drawing.PAGE_ROWS
