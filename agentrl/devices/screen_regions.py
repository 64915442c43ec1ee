"""Regions of a screen, in [0, 1] and in pixels."""

from dataclasses import dataclass

import numpy as np

from agentrl.types import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a region, in [0, 1] of the screen."""
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)

STATUS_BAR = 1 / 26
"""Height of the status bar with its clock, as a fraction of the screen."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ScreenRegion:
    """A part of the screen, each side in [0, 1]."""

    left: float
    top: float
    right: float
    bottom: float

    def contains(self, x: float, y: float) -> bool:
        """Return whether a position on the screen lies inside."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        """Convert a position in [0, 1] of the region to a position on the screen."""
        wide, tall = self.right - self.left, self.bottom - self.top
        return self.left + x * wide, self.top + y * tall


def check_frame(frame: Image) -> None:
    """Raise ValueError unless a frame is uint8[H, W, 3] with at least one pixel."""
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8:
        kind = getattr(frame, "dtype", type(frame).__name__)
        raise ValueError(f"a frame must be uint8[H, W, 3], not {kind}")
    if frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise ValueError(f"a frame must be uint8[H, W, 3], not uint8{list(frame.shape)}")


def box_to_pixels(frame: Image, box: Box) -> tuple[int, int, int, int]:
    """Return a box's left, top, right and bottom in pixels; it contains at least one pixel."""
    check_frame(frame)
    left, top, right, bottom = checked_box(box)
    height, width = frame.shape[:2]
    x, y = min(round(left * width), width - 1), min(round(top * height), height - 1)
    return x, y, max(round(right * width), x + 1), max(round(bottom * height), y + 1)


def crop(frame: Image, box: Box) -> Image:
    """Return the part of a frame inside a box, uint8[h, w, 3], not copied."""
    left, top, right, bottom = box_to_pixels(frame, box)
    return frame[top:bottom, left:right]


def pixels_to_box(frame: Image, left: float, top: float, width: float, height: float) -> Box:
    """Convert a rectangle in pixels to a box in [0, 1]."""
    high, wide = frame.shape[:2]
    return (
        max(left / wide, 0.0),
        max(top / high, 0.0),
        min((left + width) / wide, 1.0),
        min((top + height) / high, 1.0),
    )


def iou(one: Box, other: Box) -> float:
    """Return the intersection over union of two boxes, in [0, 1]."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return 0.0
    both = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    return wide * high / (both - wide * high)


def checked_box(box: Box) -> Box:
    """Return a box; raise ValueError if it is invalid."""
    left, top, right, bottom = box
    if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
        raise ValueError(f"{box} is not a box; expected left, top, right and bottom in [0, 1]")
    return box
