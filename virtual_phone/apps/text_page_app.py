"""The app of packages that have no app of their own: it shows a title and some lines of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from virtual_phone.apps.app import View
from virtual_phone.apps.system_packages import ACTIVITIES
from virtual_phone.system import system_screens
from virtual_phone.types import Image


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
        return system_screens.page(width, height, self.label, self._lines)

    def views(self) -> Sequence[View]:
        """Return the title and the lines as text views."""
        texts = (self.label, *self._lines)
        return [
            View(bounds=_row(row), text=text, kind="android.widget.TextView")
            for row, text in enumerate(texts[: system_screens.PAGE_ROWS])
        ]

    def state(self) -> Mapping[str, Any]:
        """Return the lines."""
        return {"lines": list(self._lines)}


def _row(row: int) -> tuple[float, float, float, float]:
    return 0.0, row / system_screens.PAGE_ROWS, 1.0, (row + 1) / system_screens.PAGE_ROWS
