"""Frames of a virtual phone's screen in the formats of `screencap`."""

import struct
from functools import lru_cache

import cv2
import numpy as np
import xxhash

from agentrl.types import Image
from agentrl.virtual_phone.system.drawing import blank

RGBA_8888 = 1
UNCHANGED = 0
"""In place of a pixel format: the digest of the client's last frame follows, which is still shown.
Android has no such format."""
SRGB = 1
KNOWN_SCREEN = "AGENTRL_KNOWN_SCREEN"
"""Variable in which a client passes the digest of the last frame that it received, so that the same
pixels are not sent again. Real phones ignore it."""
_HEADER = struct.Struct("<4I")
HEADER_BYTES = _HEADER.size
_BAR = (24, 26, 32)
_WHITE = (255, 255, 255)
_BLACK = (0, 0, 0)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def bar_height(height: int) -> int:
    """Height of the status bar on a screen of this height, in pixels."""
    return max(1, round(height / 26))


class ScreenFrame:
    """One image of the whole screen: the status bar above the app's area."""

    def __init__(self, bar: Image, area: Image) -> None:
        """Assemble the RGBA bytes that captures send.

        Args:
            bar: status bar, uint8[h, W, 3], RGB.
            area: area of the app below it, uint8[H - h, W, 3], RGB.
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
        self._digest = ""
        self.raw = raw.data.toreadonly()
        """Output of `screencap`: width, height, format and color space as u32, then RGBA."""

    @property
    def png(self) -> bytes:
        """Output of `screencap -p`: PNG with an alpha channel, as on Android."""
        if self._png is None:
            bgra = cv2.cvtColor(self._rgba, cv2.COLOR_RGBA2BGRA)
            done, data = cv2.imencode(".png", bgra, [cv2.IMWRITE_PNG_COMPRESSION, 1])
            assert done
            self._png = data.tobytes()
        return self._png

    @property
    def digest(self) -> str:
        """The hash of `raw`, 32 hexadecimal digits."""
        if not self._digest:
            self._digest = xxhash.xxh3_128_hexdigest(self.raw)
        return self._digest

    @property
    def unchanged(self) -> bytes:
        """Output of `screencap` for a client that knows this frame."""
        return _HEADER.pack(*self.size, UNCHANGED, SRGB) + bytes.fromhex(self.digest)

    @property
    def pixels(self) -> memoryview:
        """The RGBA pixels without the header, row by row."""
        return self.raw[_HEADER.size :]

    @property
    def rgba(self) -> Image:
        """The pixels, uint8[H, W, 4]; read-only."""
        return self._rgba


def black(width: int, height: int) -> ScreenFrame:
    """A black frame, as captured while the phone sleeps."""
    bar = bar_height(height)
    return ScreenFrame(blank(width, bar, _BLACK), blank(width, height - bar, _BLACK))


def secure(frame: ScreenFrame) -> ScreenFrame:
    """The frame of an app that forbids captures: only the status bar is visible."""
    bar = np.ascontiguousarray(frame.rgba[: frame.split, :, :3])
    height, width = frame.rgba.shape[:2]
    return ScreenFrame(bar, blank(width, height - frame.split, _BLACK))


def compose(area: Image, width: int, height: int, clock: str) -> ScreenFrame:
    """Draw the status bar above an app's area.

    Args:
        area: uint8[height - bar_height(height), width, 3].
        width: of the screen, in pixels.
        height: of the screen, in pixels.
        clock: time to show.

    Raises:
        ValueError: the area has the wrong size.
    """
    bar = bar_height(height)
    if area.shape != (height - bar, width, 3) or area.dtype != np.uint8:
        raise ValueError(
            f"render returned {area.dtype}{list(area.shape)}, not uint8[{height - bar}, {width}, 3]"
        )
    return ScreenFrame(_status_bar(width, bar, clock), area)


@lru_cache(maxsize=256)
def _status_bar(width: int, bar: int, clock: str) -> Image:
    """Clock and battery, uint8[bar, width, 3]."""
    image = blank(width, bar, _BAR)
    scale, baseline = bar / 48, round(bar * 0.7)
    cv2.putText(image, clock, (bar // 2, baseline), _FONT, scale, _WHITE, 1, cv2.LINE_AA)
    right = width - bar
    cv2.rectangle(image, (right, bar // 4), (right + bar // 2, 3 * bar // 4), _WHITE, 1)
    image.flags.writeable = False
    return image
