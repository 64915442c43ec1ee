"""Frames of a page: layout, encoding, and publication of their states."""

import struct
from dataclasses import dataclass

import cv2
import numpy as np

from agentrl.types import Image

WIDEST = 0.6
"""Maximum aspect ratio (width / height) of an app's area, as games are made for upright phones."""
NARROWEST = 0.4
_HEADER = struct.Struct(">6I")
_CALIBRATING = 1


@dataclass(slots=True, kw_only=True, frozen=True)
class AppArea:
    """The app's part of its page, in the page's pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(slots=True, kw_only=True, frozen=True)
class PageFrame:
    """One frame of a page."""

    number: int
    picture: Image
    """uint8[H, W, 3], of the page's size."""
    area: AppArea
    calibrating: bool = False
    """Whether this is the calibration pattern, whose touches are not meant for the game."""


class PaintedFrames:
    """Numbers the pictures of one page; a state is published once its picture is painted.

    Picture and state thus change together, as on a virtual phone: after a state is read, the screen
    shows the picture of that state or of a later state.
    """

    def __init__(self) -> None:
        self.number = 0
        """Number of the newest picture."""
        self._drawn = self._painted = 0
        self._states: dict[int, str | None] = {0: None}

    @property
    def state(self) -> str | None:
        """The published state, which belongs to the picture shown by the page."""
        return self._states[self._painted]

    def change(self, state: str | None, *, redraw: bool) -> None:
        """Record a new state of the app.

        Args:
            state: state to publish; None if no app is shown.
            redraw: whether the picture changes too. If not, and the picture is already painted,
                the state is published immediately.
        """
        if redraw:
            self.number += 1
            # Pictures that are never drawn are never painted.
            kept = (self._painted, self._drawn)
            self._states = {n: s for n, s in self._states.items() if n in kept}
        self._states[self.number] = state

    def forget(self) -> None:
        """Publish no state until another picture is painted."""
        self._states = dict.fromkeys(self._states)

    def draw(self) -> int:
        """Record that the newest picture is on its way to the page, and return its number."""
        self._drawn = self.number
        return self._drawn

    def paint(self, number: int) -> bool:
        """Record that the page painted a picture; return False if it is not the awaited one."""
        if number != self._drawn or number < self._painted:
            return False
        self._painted = number
        return True


def fit(width: int, height: int) -> AppArea:
    """Return the largest centered area of a page with an aspect ratio that games support."""
    wide = min(width, round(height * WIDEST))
    tall = min(height, round(width / NARROWEST))
    return AppArea(left=(width - wide) // 2, top=(height - tall) // 2, width=wide, height=tall)


def compose(app: Image, area: AppArea, width: int, height: int) -> Image:
    """Place the app's picture on its area of the page; the rest is black."""
    if app.shape[:2] == (height, width):
        return app
    page = np.zeros((height, width, 3), np.uint8)
    page[area.top : area.top + area.height, area.left : area.left + area.width] = app
    return page


def encode_frame(drawn: PageFrame) -> bytes:
    """Encode a frame for the page: six big-endian uint32 words, then a PNG.

    The words: number, left, top, width and height of the area, flags (1: calibrating).
    """
    area = drawn.area
    flags = _CALIBRATING if drawn.calibrating else 0
    words = (drawn.number, area.left, area.top, area.width, area.height, flags)
    bgr = cv2.cvtColor(drawn.picture, cv2.COLOR_RGB2BGR)
    # With flat colors, a higher level hardly saves any bytes but keeps the phone waiting.
    done, png = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    assert done, "OpenCV encodes every uint8 picture"
    return _HEADER.pack(*words) + png.tobytes()
