"""Apps for trying a phone out."""

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from agentrl.types import Image

PROBE = "agentrl.virtual_phone.apps.probe_app:ProbeApp"
"""The app that the doctor tries a phone with, as `spawn` takes it."""
_COLOURS = ((200, 60, 60), (60, 160, 60), (60, 60, 200), (200, 180, 60))


class ProbeApp:
    """Two halves, each changes its colour when touched: shows whether touches arrive.

    A touch in the middle tenth of the height, between the halves, does nothing.
    """

    package = "org.agentrl.probe"
    activity = ".Main"

    def __init__(self) -> None:
        """Both halves in their first colour."""
        self._halves = [0, 1]
        self._last: list[float] = []
        self._text = ""
        self._keys: list[str] = []
        self._extras: dict[str, str] = {}

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start afresh; `refuse` among the extras is refused."""
        if "refuse" in extras:
            raise ValueError(f"refuse={extras['refuse']}")
        self.__init__()  # type: ignore[misc]
        self._extras = dict(extras)

    def touch(self, x: float, y: float) -> bool:
        """Change the colour of the half that was touched."""
        self._last = [x, y]
        if 0.45 < y < 0.55:
            return False
        half = int(y > 0.5)
        self._halves[half] = (self._halves[half] + 1) % len(_COLOURS)
        return True

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swap the halves' colours."""
        self._last = [x1, y1, x2, y2, duration_ms]
        changed = self._halves[0] != self._halves[1]
        self._halves.reverse()
        return changed

    def key(self, code: str) -> bool:
        """Remember a key; BACK is left to the phone."""
        self._keys.append(code)
        return code != "KEYCODE_BACK"

    def text(self, text: str) -> bool:
        """Remember what was typed."""
        self._text += text
        return True

    def clear_text(self) -> bool:
        """Forget what was typed."""
        changed, self._text = bool(self._text), ""
        return changed

    def render(self, width: int, height: int) -> Image:
        """The two halves."""
        picture = np.empty((height, width, 3), np.uint8)
        top, bottom = (_COLOURS[half] for half in self._halves)
        cv2.rectangle(picture, (0, 0), (width, height // 2 - 1), top, cv2.FILLED)
        cv2.rectangle(picture, (0, height // 2), (width, height), bottom, cv2.FILLED)
        return picture

    def state(self) -> Mapping[str, Any]:
        """All that arrived."""
        return {
            "halves": list(self._halves),
            "last": self._last,
            "keys": self._keys,
            "text": self._text,
            "extras": self._extras,
        }
