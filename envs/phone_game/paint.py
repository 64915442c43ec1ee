"""Anti-aliased shapes and text on a numpy picture, quick enough for a phone's screen."""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

from agentrl.envs.phone_game.box import Box
from agentrl.types import Image

Colour = tuple[int, int, int]
_SHIFT = 4
"""Bits of a pixel's fraction in OpenCV's coordinates."""


def rounded(picture: Image, box: Box, colour: Colour, radius: float) -> None:
    """Fill a box with round corners.

    Args:
        picture: uint8[H, W, 3], drawn on in place.
        box: in [0, 1] of the picture.
        colour: RGB.
        radius: of the corners, as a share of the picture's width.
    """
    height, width = picture.shape[:2]
    outline = _outline(box, radius * width, width, height)
    cv2.fillPoly(picture, [outline], colour, cv2.LINE_AA, _SHIFT)


@lru_cache(maxsize=512)
def _outline(box: Box, radius: float, width: int, height: int) -> NDArray[np.int32]:
    """Corner by corner, in fixed-point pixels: int32[points, 2]."""
    left, right = box.left * width + radius, box.right * width - radius
    top, bottom = box.top * height + radius, box.bottom * height - radius
    points = []
    for quarter, (x, y) in enumerate([(right, bottom), (left, bottom), (left, top), (right, top)]):
        for angle in np.linspace(quarter, quarter + 1, 9) * (np.pi / 2):
            points.append((x + radius * np.cos(angle), y + radius * np.sin(angle)))
    return np.round(np.array(points) * (1 << _SHIFT)).astype(np.int32)


def disc(picture: Image, box: Box, colour: Colour, size: float) -> None:
    """Fill a circle in the middle of a box; `size` is its radius as a share of the width."""
    height, width = picture.shape[:2]
    x, y = box.centre
    scale = 1 << _SHIFT
    middle = (round(x * width * scale), round(y * height * scale))
    cv2.circle(picture, middle, round(size * width * scale), colour, -1, cv2.LINE_AA, _SHIFT)


def polygon(picture: Image, points: Sequence[tuple[float, float]], colour: Colour) -> None:
    """Fill a polygon; its corners (x, y) are in [0, 1] of the picture."""
    height, width = picture.shape[:2]
    corners = np.array(points) * (width, height) * (1 << _SHIFT)
    cv2.fillPoly(picture, [np.round(corners).astype(np.int32)], colour, cv2.LINE_AA, _SHIFT)


def text(
    picture: Image, words: str, x: float, y: float, size: float, colour: Colour, bold: float = 0.0
) -> None:
    """Write one line; (x, y) is the middle of its capitals.

    Args:
        picture: uint8[H, W, 3], drawn on in place; what would stand outside is cut off.
        words: what to write.
        x: in [0, 1] of the width.
        y: in [0, 1] of the height.
        size: of the font, as a share of the width.
        colour: RGB.
        bold: how much thicker each stroke is on each side, as a share of the width.
    """
    height, width = picture.shape[:2]
    mask = ink_of(words, max(round(size * width), 1), round(bold * width))
    left, top = round(x * width - mask.shape[1] / 2), round(y * height - mask.shape[0] / 2)
    cut_x, cut_y = max(-left, 0), max(-top, 0)
    area = picture[top + cut_y : top + mask.shape[0], left + cut_x : left + mask.shape[1]]
    mask = mask[cut_y : cut_y + area.shape[0], cut_x : cut_x + area.shape[1]]
    ink = np.array(colour, dtype=np.int32)
    area[:] = (area * (255 - mask) + ink * mask + 127) // 255


@lru_cache(maxsize=512)
def ink_of(words: str, pixels: int, stroke: int) -> NDArray[np.int32]:
    """How much ink lies on each pixel, int32[height, width, 1] in [0, 255].

    The middle row is the middle of a capital, whatever the words: neighbours share a baseline.
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
    """Pillow's own font, so that every machine draws the same picture."""
    font = ImageFont.load_default(pixels)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType; install its wheel instead.")
    return font
