"""An app for testing phones."""

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from virtual_phone.types import Image

PROBE = "virtual_phone.apps.probe_app:ProbeApp"
"""App that the doctor uses to test a phone, in the form `spawn` takes."""
_COLORS = ((200, 60, 60), (60, 160, 60), (60, 60, 200), (200, 180, 60))


TARGET, TARGET_GROUND = (255, 0, 255), (0, 128, 0)
"""Colors of a target to touch and of the background."""
_TARGET_SIDE = 1 / 36
"""Side of the target, as a fraction of the area's width."""


class ProbeApp:
    """Two halves that change color when touched, to show whether touches arrive.

    A touch in the middle tenth of the height, between the halves, has no effect.

    When launched with the extra `targets`, such as `0.2,0.3;0.8,0.5`, it shows a series of targets
    instead. Every touch (or every N touches, with the extra `touches`) moves on to the next target,
    and `hits` publishes the touched positions.
    """

    package = "org.agentrl.probe"
    activity = ".Main"

    def __init__(self) -> None:
        self._halves = [0, 1]
        self._last: list[float] = []
        self._text = ""
        self._keys: list[str] = []
        self._extras: dict[str, str] = {}
        self._targets: list[tuple[float, float]] = []
        self._centers: list[list[float]] = []
        self._hits: list[list[float]] = []
        self._touches = 1

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start from the initial state; fail if the extra `refuse` is given."""
        if "refuse" in extras:
            raise ValueError(f"refuse={extras['refuse']}")
        self.__init__()  # type: ignore[misc]
        self._extras = dict(extras)
        for place in filter(None, extras.get("targets", "").split(";")):
            x, y = map(float, place.split(","))
            self._targets.append((x, y))
        self._touches = int(extras.get("touches", "1"))

    def touch(self, x: float, y: float) -> bool:
        """Change the color of the touched half."""
        self._last = [x, y]
        if self._targets:
            self._hits.append([x, y])
            return len(self._hits) % self._touches == 0
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
        """Record a key, leaving BACK to the phone."""
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
        """Draw the two halves, or the current target."""
        if self._targets:
            return self._draw_target(width, height)
        image = np.empty((height, width, 3), np.uint8)
        top, bottom = (_COLORS[half] for half in self._halves)
        cv2.rectangle(image, (0, 0), (width, height // 2 - 1), top, cv2.FILLED)
        cv2.rectangle(image, (0, height // 2), (width, height), bottom, cv2.FILLED)
        return image

    def state(self) -> Mapping[str, Any]:
        """Return all inputs received since the launch and what they changed."""
        return {
            "halves": list(self._halves),
            "last": self._last,
            "keys": self._keys,
            "text": self._text,
            "extras": self._extras,
            "hits": self._hits,
            "centers": self._centers,
        }

    def _draw_target(self, width: int, height: int) -> Image:
        """Draw a square centered on a pixel, or just the background after the last target."""
        image = np.full((height, width, 3), TARGET_GROUND, np.uint8)
        number = len(self._hits) // self._touches
        if number < len(self._targets):
            x, y = self._targets[number]
            column, row = min(int(x * width), width - 1), min(int(y * height), height - 1)
            reach = max(2, round(width * _TARGET_SIDE / 2))
            top, left = max(row - reach, 0), max(column - reach, 0)
            image[top : row + reach + 1, left : column + reach + 1] = TARGET
            center = [(column + 0.5) / width, (row + 0.5) / height]
            self._centers = [*self._centers[:number], center]
        return image
