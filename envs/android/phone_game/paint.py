"""Anti-aliased shapes and text on a NumPy image, fast enough for a phone's screen."""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

from agentrl.envs.android.phone_game.boxes import Box
from agentrl.types import Image

Color = tuple[int, int, int]
_SHIFT = 4
"""Fractional bits of OpenCV's fixed-point coordinates."""


def rounded(picture: Image, box: Box, color: Color, radius: float) -> None:
    """Fill a box with rounded corners, whose radius is a share of the picture's width."""
    height, width = picture.shape[:2]
    outline = _outline(box, radius * width, width, height)
    cv2.fillPoly(picture, [outline], color, cv2.LINE_AA, _SHIFT)


def panel(picture: Image, box: Box, face: Color, edge: Color, radius: float = 0.03) -> None:
    """Fill a box with rounded corners and a thin edge."""
    rounded(picture, box, edge, radius)
    inner = Box(box.left + 0.005, box.top + 0.003, box.right - 0.005, box.bottom - 0.003)
    rounded(picture, inner, face, radius - 0.004)


@lru_cache(maxsize=512)
def _outline(box: Box, radius: float, width: int, height: int) -> NDArray[np.int32]:
    """Return the polygon of a rounded box in fixed-point pixels, int32[points, 2]."""
    left, right = box.left * width + radius, box.right * width - radius
    top, bottom = box.top * height + radius, box.bottom * height - radius
    points = []
    for quarter, (x, y) in enumerate([(right, bottom), (left, bottom), (left, top), (right, top)]):
        for angle in np.linspace(quarter, quarter + 1, 9) * (np.pi / 2):
            points.append((x + radius * np.cos(angle), y + radius * np.sin(angle)))
    return np.round(np.array(points) * (1 << _SHIFT)).astype(np.int32)


def disc(picture: Image, box: Box, color: Color, size: float) -> None:
    """Fill a circle at the center of a box; `size` is its radius as a share of the width."""
    height, width = picture.shape[:2]
    x, y = box.center
    scale = 1 << _SHIFT
    middle = (round(x * width * scale), round(y * height * scale))
    cv2.circle(picture, middle, round(size * width * scale), color, -1, cv2.LINE_AA, _SHIFT)


def polygon(picture: Image, points: Sequence[tuple[float, float]], color: Color) -> None:
    """Fill a polygon with corners (x, y) in [0, 1] of the picture."""
    height, width = picture.shape[:2]
    corners = np.array(points) * (width, height) * (1 << _SHIFT)
    cv2.fillPoly(picture, [np.round(corners).astype(np.int32)], color, cv2.LINE_AA, _SHIFT)


def text(
    picture: Image, words: str, x: float, y: float, size: float, color: Color, bold: float = 0.0
) -> None:
    """Write one line of text, with the middle of its capitals at (x, y) in [0, 1].

    The font size and the extra width of a bold stroke are shares of the picture's width.
    """
    height, width = picture.shape[:2]
    mask = ink_of(words, max(round(size * width), 1), round(bold * width))
    left, top = round(x * width - mask.shape[1] / 2), round(y * height - mask.shape[0] / 2)
    cut_x, cut_y = max(-left, 0), max(-top, 0)
    area = picture[top + cut_y : top + mask.shape[0], left + cut_x : left + mask.shape[1]]
    mask = mask[cut_y : cut_y + area.shape[0], cut_x : cut_x + area.shape[1]]
    ink = np.array(color, dtype=np.int32)
    area[:] = (area * (255 - mask) + ink * mask + 127) // 255


@lru_cache(maxsize=512)
def ink_of(words: str, pixels: int, stroke: int) -> NDArray[np.int32]:
    """Return the text's coverage of each pixel, int32[height, width, 1] in [0, 255].

    The middle row is always the middle of a capital, so that adjacent texts share a baseline.
    """
    font = _font(pixels)
    left, _, right, _ = font.getbbox(words, stroke_width=stroke)
    _, top, _, bottom = font.getbbox("H")
    room = round(pixels * 0.35) + stroke
    size = (max(round(right - left), 1), round(bottom - top) + 2 * room)
    canvas = PillowImage.new("L", size)
    origin = (-left, room - top)
    ImageDraw.Draw(canvas).text(origin, words, fill=255, font=font, stroke_width=stroke)
    return np.asarray(canvas, dtype=np.int32)[..., None]


@lru_cache(maxsize=64)
def _font(pixels: int) -> ImageFont.FreeTypeFont:
    """Load Pillow's bundled font, so that every machine draws the same picture."""
    font = ImageFont.load_default(pixels)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType; install Pillow from its wheel.")
    return font
