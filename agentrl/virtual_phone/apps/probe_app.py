"""An app for testing phones."""

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from agentrl.types import Image

PROBE = "agentrl.virtual_phone.apps.probe_app:ProbeApp"
"""The app with which the doctor tests a phone, in the form that `spawn` takes."""
_COLORS = ((200, 60, 60), (60, 160, 60), (60, 60, 200), (200, 180, 60))


class ProbeApp:
    """Two halves that change color when touched: shows whether touches arrive.

    A touch in the middle tenth of the height, between the halves, has no effect.
    """

    package = "org.agentrl.probe"
    activity = ".Main"

    def __init__(self) -> None:
        self._halves = [0, 1]
        self._last: list[float] = []
        self._text = ""
        self._keys: list[str] = []
        self._extras: dict[str, str] = {}

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start from the initial state; the extra `refuse` is rejected."""
        if "refuse" in extras:
            raise ValueError(f"refuse={extras['refuse']}")
        self.__init__()  # type: ignore[misc]
        self._extras = dict(extras)

    def touch(self, x: float, y: float) -> bool:
        """Change the color of the touched half."""
        self._last = [x, y]
        if 0.45 < y < 0.55:
            return False
        half = int(y > 0.5)
        self._halves[half] = (self._halves[half] + 1) % len(_COLORS)
        return True

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swap the colors of the halves."""
        self._last = [x1, y1, x2, y2, duration_ms]
        changed = self._halves[0] != self._halves[1]
        self._halves.reverse()
        return changed

    def key(self, code: str) -> bool:
        """Record a key; BACK is left to the phone."""
        self._keys.append(code)
        return code != "KEYCODE_BACK"

    def text(self, text: str) -> bool:
        """Record typed text."""
        self._text += text
        return True

    def clear_text(self) -> bool:
        """Delete the recorded text."""
        changed, self._text = bool(self._text), ""
        return changed

    def render(self, width: int, height: int) -> Image:
        """Draw the two halves."""
        image = np.empty((height, width, 3), np.uint8)
        top, bottom = (_COLORS[half] for half in self._halves)
        cv2.rectangle(image, (0, 0), (width, height // 2 - 1), top, cv2.FILLED)
        cv2.rectangle(image, (0, height // 2), (width, height), bottom, cv2.FILLED)
        return image

    def state(self) -> Mapping[str, Any]:
        """Everything that arrived."""
        return {
            "halves": list(self._halves),
            "last": self._last,
            "keys": self._keys,
            "text": self._text,
            "extras": self._extras,
        }
