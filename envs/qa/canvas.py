"""Draws flat shapes with smooth edges, identically on every machine."""

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

_FINER = 4
"""Supersampling factor: shapes are drawn aliased, then averaged, with integer math only."""

Point = tuple[float, float]
Color = tuple[int, int, int]


class Canvas:
    """A picture to draw on, with a background color."""

    def __init__(self, width: int, height: int, ground: Color = (240, 240, 240)) -> None:
        row = np.full((width * _FINER, 3), ground, np.uint8)
        # Broadcasting a row is many times faster than broadcasting a color.
        self._fine: Image = np.broadcast_to(row, (height * _FINER, *row.shape)).copy()

    def fill(self, outline: Sequence[Point], color: Color) -> None:
        """Fill a shape; positions are in pixels, x to the right and y down."""
        cv2.fillPoly(self._fine, [_fine(outline)], color)

    def line(self, a: Point, b: Point, color: Color, width: float = 2.0) -> None:
        """Draw a straight line; the width is in pixels."""
        start, end = _fine([a, b]).tolist()
        cv2.line(self._fine, start, end, color, max(1, round(width * _FINER)))

    def write(self, text: str, center: Point, color: Color, height: float = 16.0) -> None:
        """Write a short string centered at a point; the height of capitals is in pixels."""
        font, scale = cv2.FONT_HERSHEY_SIMPLEX, height * _FINER / 21.0
        thickness = max(1, round(height * _FINER / 9))
        (width, tall), _ = cv2.getTextSize(text, font, scale, thickness)
        place = (
            round(center[0] * _FINER - width / 2),
            round(center[1] * _FINER + tall / 2),
        )
        cv2.putText(self._fine, text, place, font, scale, color, thickness, cv2.LINE_8)

    def picture(self) -> Image:
        """Return the picture with smooth edges, uint8[H, W, 3]."""
        height, width = self._fine.shape[0] // _FINER, self._fine.shape[1] // _FINER
        small = cv2.resize(self._fine, (width, height), interpolation=cv2.INTER_AREA)
        return np.asarray(small, dtype=np.uint8)


def on_circle(center: Point, radius: float, degrees: float) -> Point:
    """Return a point on a circle; the angle is measured counterclockwise from the right."""
    angle = math.radians(degrees)
    return center[0] + radius * math.cos(angle), center[1] - radius * math.sin(angle)


def outline(shape: str, center: Point, radius: float) -> list[Point]:
    """Return the corners of a `circle`, `square` or `triangle`, with about the circle's area."""
    corners, size, first = _SHAPES[shape]
    step = 360 / corners
    return [on_circle(center, radius * size, first + corner * step) for corner in range(corners)]


_SHAPES = {
    "circle": (48, 1.0, 0.0),
    "square": (4, 1.25, 45.0),
    "triangle": (3, 1.4, 90.0),
}
"""Number of corners, distance of a corner for radius 1, and angle of the first corner."""


def _fine(points: Sequence[Point]) -> NDArray[np.int32]:
    return np.array([[round(x * _FINER), round(y * _FINER)] for x, y in points], np.int32)
