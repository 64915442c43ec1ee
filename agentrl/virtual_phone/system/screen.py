"""The whole screen of a virtual phone, as a capture serves it: the status bar above the apps."""

import struct
from functools import lru_cache

import cv2
import numpy as np

from agentrl.types import Image
from agentrl.virtual_phone.system.drawing import blank

RGBA_8888 = 1
SRGB = 1
_HEADER = struct.Struct("<4I")
HEADER_BYTES = _HEADER.size
_BAR = (24, 26, 32)
_WHITE = (255, 255, 255)
_BLACK = (0, 0, 0)
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
        _HEADER.pack_into(raw.data, 0, width, height, RGBA_8888, SRGB)
        self.size = (width, height)
        self.split = split
        """Height of the status bar, in pixels."""
        self._rgba = raw[_HEADER.size :].reshape(height, width, 4)
        cv2.cvtColor(bar, cv2.COLOR_RGB2RGBA, dst=self._rgba[:split])
        cv2.cvtColor(area, cv2.COLOR_RGB2RGBA, dst=self._rgba[split:])
        self._png: bytes | None = None
        self.raw = raw.data.toreadonly()
        """What `screencap` writes: width, height, format, colour space as u32, then RGBA."""

    @property
    def png(self) -> bytes:
        """What `screencap -p` writes: with an alpha channel, as Android does."""
        if self._png is None:
            bgra = cv2.cvtColor(self._rgba, cv2.COLOR_RGBA2BGRA)
            done, data = cv2.imencode(".png", bgra, [cv2.IMWRITE_PNG_COMPRESSION, 1])
            assert done
            self._png = data.tobytes()
        return self._png

    @property
    def pixels(self) -> memoryview:
        """The RGBA pixels alone, row after row."""
        return self.raw[_HEADER.size :]

    @property
    def rgba(self) -> Image:
        """The picture, uint8[H, W, 4]; not to be written to."""
        return self._rgba


def black(width: int, height: int) -> Frame:
    """What a capture of a phone asleep gives."""
    bar = bar_height(height)
    return Frame(blank(width, bar, _BLACK), blank(width, height - bar, _BLACK))


def secure(frame: Frame) -> Frame:
    """The same screen with an app that forbids captures: only the status bar is to be seen."""
    bar = np.ascontiguousarray(frame.rgba[: frame.split, :, :3])
    height, width = frame.rgba.shape[:2]
    return Frame(bar, blank(width, height - frame.split, _BLACK))


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
    picture = blank(width, bar, _BAR)
    scale, baseline = bar / 48, round(bar * 0.7)
    cv2.putText(picture, clock, (bar // 2, baseline), _FONT, scale, _WHITE, 1, cv2.LINE_AA)
    right = width - bar
    cv2.rectangle(picture, (right, bar // 4), (right + bar // 2, 3 * bar // 4), _WHITE, 1)
    picture.flags.writeable = False
    return picture
