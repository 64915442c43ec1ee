"""Pictures of a virtual phone: the status bar, the home screen and the frame a capture serves."""

import struct
from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np

from agentrl.types import Image

RGBA_8888 = 1
_HEADER = struct.Struct("<4I")
_BAR = (24, 26, 32)
_HOME = (38, 50, 72)
_TILE = (66, 133, 244)
_WHITE = (255, 255, 255)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def bar_height(height: int) -> int:
    """Height of the status bar of a screen of this height, in pixels."""
    return max(1, round(height / 26))


class Frame:
    """One picture of the whole screen, as a capture serves it."""

    def __init__(self, bar: Image, area: Image) -> None:
        """Keep the bytes that captures send.

        Args:
            bar: the status bar, uint8[h, W, 3], RGB.
            area: of the app below it, uint8[H - h, W, 3], RGB.
        """
        split, width = bar.shape[:2]
        height = split + len(area)
        raw = np.empty(_HEADER.size + width * height * 4, np.uint8)
        _HEADER.pack_into(raw.data, 0, width, height, RGBA_8888, 0)
        self._rgba = raw[_HEADER.size :].reshape(height, width, 4)
        cv2.cvtColor(bar, cv2.COLOR_RGB2RGBA, dst=self._rgba[:split])
        cv2.cvtColor(area, cv2.COLOR_RGB2RGBA, dst=self._rgba[split:])
        self._png: bytes | None = None
        self.raw = raw.data.toreadonly()
        """What `screencap` writes: width, height, format, colour space as u32, then RGBA."""

    @property
    def png(self) -> bytes:
        """What `screencap -p` writes."""
        if self._png is None:
            bgr = cv2.cvtColor(self._rgba, cv2.COLOR_RGBA2BGR)
            done, data = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 1])
            assert done
            self._png = data.tobytes()
        return self._png


def compose(area: Image, width: int, height: int, clock: str) -> Frame:
    """The whole screen: the status bar above the area of the app.

    Args:
        area: uint8[height - bar_height(height), width, 3].
        width: of the screen, in pixels.
        height: of the screen, in pixels.
        clock: the time to show.

    Raises:
        ValueError: the app drew another size.
    """
    bar = bar_height(height)
    if area.shape != (height - bar, width, 3) or area.dtype != np.uint8:
        raise ValueError(
            f"render gave {area.dtype}{list(area.shape)}, not uint8[{height - bar}, {width}, 3]"
        )
    return Frame(_status_bar(width, bar, clock), area)


@lru_cache(maxsize=256)
def _status_bar(width: int, bar: int, clock: str) -> Image:
    """Clock and battery, uint8[bar, width, 3]."""
    picture = np.full((bar, width, 3), _BAR, np.uint8)
    scale, baseline = bar / 48, round(bar * 0.7)
    cv2.putText(picture, clock, (bar // 2, baseline), _FONT, scale, _WHITE, 1, cv2.LINE_AA)
    right = width - bar
    cv2.rectangle(picture, (right, bar // 4), (right + bar // 2, 3 * bar // 4), _WHITE, 1)
    picture.flags.writeable = False
    return picture


def tile_at(x: float, y: float, count: int) -> int | None:
    """Which of `count` tiles of the home screen stands at (x, y) in [0, 1], or None."""
    column, row = int(x * 4), int(y * 6)
    index = row * 4 + column
    inside = 0.15 < x * 4 - column < 0.85 and 0.1 < y * 6 - row < 0.9
    return index if inside and index < count else None


def home(width: int, height: int, names: Sequence[str]) -> Image:
    """The home screen's area: one tile per app.

    Returns:
        uint8[height, width, 3].
    """
    picture = np.full((height, width, 3), _HOME, np.uint8)
    for index, name in enumerate(names):
        row, column = divmod(index, 4)
        left, top = round((column + 0.15) * width / 4), round((row + 0.1) * height / 6)
        right, bottom = round((column + 0.85) * width / 4), round((row + 0.7) * height / 6)
        cv2.rectangle(picture, (left, top), (right, bottom), _TILE, cv2.FILLED)
        low = (left, round((row + 0.87) * height / 6))
        cv2.putText(picture, name[:12], low, _FONT, width / 1800, _WHITE, 1, cv2.LINE_AA)
    return picture
