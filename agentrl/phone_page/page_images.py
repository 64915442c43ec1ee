"""From an app's picture to what travels to its page."""

import struct
from dataclasses import dataclass

import cv2
import numpy as np

from agentrl.types import Image

WIDEST = 0.6
"""Width over height of an app's area: games are drawn for a phone that is held upright."""
NARROWEST = 0.4
_HEADER = struct.Struct(">6I")
_CALIBRATING = 1


@dataclass(slots=True, kw_only=True, frozen=True)
class Area:
    """The app's part of its page, in the page's pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Drawn:
    """Everything that a page shows."""

    number: int
    """Of the frame."""
    picture: Image
    """uint8[H, W, 3], of the page's size."""
    area: Area
    calibrating: bool = False
    """Whether it is the pattern that the page is found by, and touches are no game's."""


def fit(width: int, height: int) -> Area:
    """The largest area of a shape that games are drawn for, in the middle of a page."""
    wide = min(width, round(height * WIDEST))
    tall = min(height, round(width / NARROWEST))
    return Area(left=(width - wide) // 2, top=(height - tall) // 2, width=wide, height=tall)


def compose(app: Image, area: Area, width: int, height: int) -> Image:
    """The app's picture in its area of a page of this size, black beside it."""
    if app.shape[:2] == (height, width):
        return app
    page = np.zeros((height, width, 3), np.uint8)
    page[area.top : area.top + area.height, area.left : area.left + area.width] = app
    return page


def encode(drawn: Drawn) -> bytes:
    """A frame as the page reads it: six big-endian words, then a PNG.

    The words: number, left, top, width and height of the area, flags (1: calibrating).
    """
    area = drawn.area
    flags = _CALIBRATING if drawn.calibrating else 0
    words = (drawn.number, area.left, area.top, area.width, area.height, flags)
    bgr = cv2.cvtColor(drawn.picture, cv2.COLOR_RGB2BGR)
    # Flat colours: more effort makes it hardly smaller, and the phone waits for it.
    done, png = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    assert done, "OpenCV encodes every uint8 picture"
    return _HEADER.pack(*words) + png.tobytes()
