"""The phone's own screens: home screen, lock screen, pages of text."""

import zlib
from collections.abc import Sequence

import cv2

from virtual_phone.system.drawing import FONT, blank, fill, write
from virtual_phone.types import Image

_DARK = (24, 26, 32)
_HOME = (38, 50, 72)
_TILE = (66, 133, 244)
_WHITE = (255, 255, 255)
_PAPER = (250, 250, 250)
_INK = (40, 40, 40)
_MIN_BRIGHTNESS, _BRIGHTNESS_RANGE = 90, 150
"""Brightness range of the title bars, whose colors distinguish pages at a glance."""
_COLUMNS, _ROWS = 4, 6
"""Columns and rows of tiles on the home screen."""
_NAME = 0.2 / _ROWS
"""Height of the name at the bottom of a tile, relative to the screen."""
_NAME_BASE = 0.03 / _ROWS
"""Distance from the bottom of a tile to the baseline of its name, relative to the screen."""
PAGE_ROWS = 16
"""Number of lines on a page, including the title."""


def tile_bounds(index: int) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a home screen tile with its name, in [0, 1]."""
    row, column = divmod(index, _COLUMNS)
    return (
        (column + 0.15) / _COLUMNS,
        (row + 0.1) / _ROWS,
        (column + 0.85) / _COLUMNS,
        (row + 0.9) / _ROWS,
    )


def tile_at(x: float, y: float, count: int) -> int | None:
    """Return the index of the home screen tile at (x, y) in [0, 1], or None."""
    for index in range(count):
        left, top, right, bottom = tile_bounds(index)
        if left < x < right and top < y < bottom:
            return index
    return None


def home(width: int, height: int, names: Sequence[str]) -> Image:
    """Draw the home screen's area with one tile per app.

    Returns:
        uint8[height, width, 3].
    """
    image = blank(width, height, _HOME)
    for index, name in enumerate(names):
        left, top, right, bottom = tile_bounds(index)
        fill(image, (left, top, right, bottom - _NAME), _TILE)
        low = (round(left * width), round((bottom - _NAME_BASE) * height))
        cv2.putText(image, name[:12], low, FONT, width / 1800, _WHITE, 1, cv2.LINE_AA)
    return image


def keyguard(width: int, height: int, clock: str) -> Image:
    """Draw the lock screen's area, uint8[height, width, 3]."""
    image = blank(width, height, _DARK)
    write(image, clock, (0.3, 0.3), width / 240, _WHITE)
    write(image, "Swipe up to unlock", (0.28, 0.9), width / 900, _WHITE)
    return image


def page(width: int, height: int, label: str, lines: Sequence[str]) -> Image:
    """Draw text below a title bar colored by its label, uint8[height, width, 3]."""
    image = blank(width, height, _PAPER)
    color_bytes = zlib.crc32(label.encode("utf-8", "replace")).to_bytes(4, "big")[:3]
    image[: round(height / PAGE_ROWS)] = [
        _MIN_BRIGHTNESS + byte * _BRIGHTNESS_RANGE // 255 for byte in color_bytes
    ]
    for row, line in enumerate((label, *lines)[:PAGE_ROWS]):
        scale = width / (600 if row == 0 else 1000)
        write(image, line[:60], (0.05, (row + 0.7) / PAGE_ROWS), scale, _INK)
    return image
