"""Frames of a virtual phone's screen, in the output formats of `screencap`."""

import itertools
import math
import secrets
import struct
from collections.abc import Iterator
from functools import cached_property, lru_cache

import cv2
import numpy as np

from virtual_phone.system.drawing import blank
from virtual_phone.types import Image

RGBA_8888 = 1
CHANGES = 0
"""Used instead of a pixel format if only the differences from the client's last frame follow.
Not an Android format."""
SRGB = 1
KNOWN_SCREEN = "AGENTRL_KNOWN_SCREEN"
"""Variable with which a `screencap` client requests changes only: the token of its last frame,
`none` or `SENT`. Real phones ignore it."""
SENT = "sent"
"""Used instead of a token for the last frame sent by the same shell."""
_HEADER = struct.Struct("<4I")
HEADER_BYTES = _HEADER.size
CHANGES_HEADER = struct.Struct("<16s16sI")
"""Follows the header of a frame: its token, the token of the base frame (or zeros) and the number
of boxes. After it come the boxes, then their RGB pixels, box by box."""
BOX = struct.Struct("<4I")
"""Left, top, right and bottom of a box, in pixels."""
_ROWS_BETWEEN = 8
"""Maximum number of unchanged rows within a box."""
_PROCESS, _numbers = secrets.token_bytes(8), itertools.count()
_BAR = (24, 26, 32)
_WHITE = (255, 255, 255)
_BLACK = (0, 0, 0)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def bar_height(height: int) -> int:
    """Return the height in pixels of the status bar on a screen of this height."""
    return max(1, round(height / 26))


class ScreenFrame:
    """An image of the whole screen: the status bar above the app's area."""

    def __init__(self, bar: Image, area: Image) -> None:
        """Keep references to both parts, which must not change afterwards.

        Args:
            bar: status bar, uint8[h, W, 3], RGB.
            area: the app's area below the status bar, uint8[H - h, W, 3], RGB.
        """
        self.split, width = bar.shape[:2]
        """Height of the status bar, in pixels."""
        self.size = (width, self.split + len(area))
        self.token = _PROCESS + next(_numbers).to_bytes(8, "little")
        """Unique id of the frame, 16 bytes."""
        self._parts = (np.ascontiguousarray(bar), np.ascontiguousarray(area))

    @cached_property
    def raw(self) -> memoryview:
        """Output of `screencap`: width, height, format and color space as u32, then RGBA."""
        width, height = self.size
        raw = np.empty(HEADER_BYTES + width * height * 4, np.uint8)
        _HEADER.pack_into(raw.data, 0, width, height, RGBA_8888, SRGB)
        rgba = raw[HEADER_BYTES:].reshape(height, width, 4)
        for part, rows in zip(self._parts, (rgba[: self.split], rgba[self.split :]), strict=True):
            cv2.cvtColor(part, cv2.COLOR_RGB2RGBA, dst=rows)
        return raw.data.toreadonly()

    @cached_property
    def png(self) -> bytes:
        """Output of `screencap -p`: PNG with an alpha channel, as on Android."""
        bgra = cv2.cvtColor(self.rgba, cv2.COLOR_RGBA2BGRA)
        done, data = cv2.imencode(".png", bgra, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        assert done
        return data.tobytes()

    def changes(self, known: "ScreenFrame | None") -> bytes:
        """Return the output of `screencap` for a client that requests changes only.

        Args:
            known: the client's last frame; None if it does not have any.
        """
        if known is not None and known.size != self.size:
            known = None
        base = bytes(16) if known is None else known.token
        boxes, pixels = list[bytes](), list[memoryview]()
        for number, (top, part) in enumerate(zip((0, self.split), self._parts, strict=True)):
            old = None if known is None else known._parts[number]
            for left, upper, right, lower in _changed_boxes(part, old):
                boxes.append(BOX.pack(left, top + upper, right, top + lower))
                pixels.append(np.ascontiguousarray(part[upper:lower, left:right]).data)
        header = _HEADER.pack(*self.size, CHANGES, SRGB)
        return b"".join(
            (header, CHANGES_HEADER.pack(self.token, base, len(boxes)), *boxes, *pixels)
        )

    @cached_property
    def rgba(self) -> Image:
        """RGBA pixels, uint8[H, W, 4], read-only."""
        width, height = self.size
        return np.frombuffer(self.raw, np.uint8, offset=HEADER_BYTES).reshape(height, width, 4)


def _changed_boxes(new: Image, old: Image | None) -> Iterator[tuple[int, int, int, int]]:
    """Yield boxes (left, top, right, bottom) in pixels that cover all differences of two images.

    Args:
        new: the new image, uint8[H, W, 3].
        old: the old image, of the same shape; None yields a single box with the whole image.
    """
    height, width = new.shape[:2]
    if old is None:
        yield 0, 0, width, height
        return
    if new is old:
        return
    cell = math.gcd(3 * width, 8)  # compare several bytes at a time
    differs = new.reshape(height, -1).view(f"u{cell}") != old.reshape(height, -1).view(f"u{cell}")
    rows = np.flatnonzero(differs.any(axis=1))
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > _ROWS_BETWEEN) + 1):
        if run.size:
            top, bottom = int(run[0]), int(run[-1]) + 1
            columns = np.flatnonzero(differs[top:bottom].any(axis=0))
            first, end = int(columns[0]) * cell, (int(columns[-1]) + 1) * cell
            yield first // 3, top, -(-end // 3), bottom


def black(width: int, height: int) -> ScreenFrame:
    """Create a black frame, as captured while the phone sleeps."""
    bar = bar_height(height)
    return ScreenFrame(blank(width, bar, _BLACK), blank(width, height - bar, _BLACK))


def secure(frame: ScreenFrame) -> ScreenFrame:
    """Black out all but the status bar, as for an app that forbids captures."""
    bar = np.ascontiguousarray(frame.rgba[: frame.split, :, :3])
    width, height = frame.size
    return ScreenFrame(bar, blank(width, height - frame.split, _BLACK))


def compose(area: Image, width: int, height: int, clock: str) -> ScreenFrame:
    """Draw the status bar above an app's area.

    Args:
        area: the app's area, uint8[height - bar_height(height), width, 3].
        width: width of the screen, in pixels.
        height: height of the screen, in pixels.
        clock: time to show.
    """
    bar = bar_height(height)
    if area.shape != (height - bar, width, 3) or area.dtype != np.uint8:
        raise ValueError(
            f"render returned {area.dtype}{list(area.shape)}, not uint8[{height - bar}, {width}, 3]"
        )
    return ScreenFrame(_status_bar(width, bar, clock), area)


@lru_cache(maxsize=256)
def _status_bar(width: int, bar: int, clock: str) -> Image:
    """Draw the clock and the battery, uint8[bar, width, 3]."""
    image = blank(width, bar, _BAR)
    scale, baseline = bar / 48, round(bar * 0.7)
    cv2.putText(image, clock, (bar // 2, baseline), _FONT, scale, _WHITE, 1, cv2.LINE_AA)
    right = width - bar
    cv2.rectangle(image, (right, bar // 4), (right + bar // 2, 3 * bar // 4), _WHITE, 1)
    image.flags.writeable = False
    return image
