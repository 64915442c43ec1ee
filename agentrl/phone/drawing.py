"""Pictures of what belongs to the phone and to no app: home screen, lock screen, pages of text."""

import zlib
from collections.abc import Sequence

import cv2
import numpy as np

from agentrl.types import Image

_DARK = (24, 26, 32)
_HOME = (38, 50, 72)
_TILE = (66, 133, 244)
_WHITE = (255, 255, 255)
_PAPER = (250, 250, 250)
_INK = (40, 40, 40)
_LEAST, _MORE = 90, 150
"""Brightness of the bars that tell pages apart at first sight."""
_FONT = cv2.FONT_HERSHEY_SIMPLEX

PAGE_ROWS = 16
"""Lines of text on a page."""


def blank(width: int, height: int, colour: tuple[int, int, int]) -> Image:
    """One colour, uint8[height, width, 3]."""
    return np.full((height, width, 3), colour, np.uint8)


def write(
    picture: Image,
    text: str,
    at: tuple[float, float],
    scale: float,
    colour: tuple[int, int, int],
) -> None:
    """Write text into a picture.

    Args:
        picture: uint8[height, width, 3].
        text: what cannot be drawn becomes question marks.
        at: where its base line starts, in [0, 1].
        scale: of the font.
        colour: RGB.
    """
    height, width = picture.shape[:2]
    origin = (round(at[0] * width), round(at[1] * height))
    plain = text.encode("ascii", "replace").decode()
    cv2.putText(picture, plain, origin, _FONT, scale, colour, 1, cv2.LINE_AA)


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
    picture = blank(width, height, _HOME)
    for index, name in enumerate(names):
        row, column = divmod(index, 4)
        left, top = round((column + 0.15) * width / 4), round((row + 0.1) * height / 6)
        right, bottom = round((column + 0.85) * width / 4), round((row + 0.7) * height / 6)
        cv2.rectangle(picture, (left, top), (right, bottom), _TILE, cv2.FILLED)
        low = (left, round((row + 0.87) * height / 6))
        cv2.putText(picture, name[:12], low, _FONT, width / 1800, _WHITE, 1, cv2.LINE_AA)
    return picture


def keyguard(width: int, height: int, clock: str) -> Image:
    """The lock screen's area, uint8[height, width, 3]."""
    picture = blank(width, height, _DARK)
    write(picture, clock, (0.3, 0.3), width / 240, _WHITE)
    write(picture, "Swipe up to unlock", (0.28, 0.9), width / 900, _WHITE)
    return picture


def page(width: int, height: int, label: str, lines: Sequence[str]) -> Image:
    """A page of text below a bar in a colour of its label's own, uint8[height, width, 3]."""
    picture = blank(width, height, _PAPER)
    told = zlib.crc32(label.encode("utf-8", "replace")).to_bytes(4, "big")
    picture[: round(height / PAGE_ROWS)] = [_LEAST + byte * _MORE // 255 for byte in told[:3]]
    for row, line in enumerate((label, *lines)[:PAGE_ROWS]):
        scale = width / (600 if row == 0 else 1000)
        write(picture, line[:60], (0.05, (row + 0.7) / PAGE_ROWS), scale, _INK)
    return picture
