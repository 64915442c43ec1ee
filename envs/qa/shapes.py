"""Draw flat shapes with smooth edges, the same on every machine."""

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

_FINER = 4
"""Drawn so many times as large without smoothing, then averaged: integers all the way."""

Point = tuple[float, float]
Colour = tuple[int, int, int]


class Canvas:
    """A picture under way.

    Args:
        width: in pixels.
        height: in pixels.
        ground: its colour.
    """

    def __init__(self, width: int, height: int, ground: Colour = (240, 240, 240)) -> None:
        self._fine: Image = np.full((height * _FINER, width * _FINER, 3), ground, np.uint8)

    def fill(self, outline: Sequence[Point], colour: Colour) -> None:
        """Fill a shape; positions in pixels, x to the right and y down."""
        cv2.fillPoly(self._fine, [_fine(outline)], colour)

    def line(self, a: Point, b: Point, colour: Colour, width: float = 2.0) -> None:
        """Draw a straight line; its width in pixels."""
        start, end = _fine([a, b]).tolist()
        cv2.line(self._fine, start, end, colour, max(1, round(width * _FINER)))

    def write(self, text: str, centre: Point, colour: Colour, height: float = 16.0) -> None:
        """Write a short text around a point; the height of its capitals in pixels."""
        font, scale = cv2.FONT_HERSHEY_SIMPLEX, height * _FINER / 21.0
        thickness = max(1, round(height * _FINER / 9))
        (width, tall), _ = cv2.getTextSize(text, font, scale, thickness)
        place = (
            round(centre[0] * _FINER - width / 2),
            round(centre[1] * _FINER + tall / 2),
        )
        cv2.putText(self._fine, text, place, font, scale, colour, thickness, cv2.LINE_8)

    def picture(self) -> Image:
        """uint8[H, W, 3], with smooth edges."""
        height, width = self._fine.shape[0] // _FINER, self._fine.shape[1] // _FINER
        small = cv2.resize(self._fine, (width, height), interpolation=cv2.INTER_AREA)
        return np.asarray(small, dtype=np.uint8)


def on_circle(centre: Point, radius: float, degrees: float) -> Point:
    """A point of a circle; the angle from the right, counter-clockwise."""
    angle = math.radians(degrees)
    return centre[0] + radius * math.cos(angle), centre[1] - radius * math.sin(angle)


def outline(shape: str, centre: Point, radius: float) -> list[Point]:
    """The corners of a shape.

    Args:
        shape: `circle`, `square` or `triangle`.
        centre: in pixels.
        radius: of a circle of about the same area, in pixels.

    Raises:
        KeyError: there is no such shape.
    """
    corners, size, first = _SHAPES[shape]
    step = 360 / corners
    return [on_circle(centre, radius * size, first + corner * step) for corner in range(corners)]


_SHAPES = {
    "circle": (48, 1.0, 0.0),
    "square": (4, 1.25, 45.0),
    "triangle": (3, 1.4, 90.0),
}
"""Corners, the distance of a corner for radius 1, and the angle of the first one."""


def _fine(points: Sequence[Point]) -> NDArray[np.int32]:
    return np.array([[round(x * _FINER), round(y * _FINER)] for x, y in points], np.int32)
