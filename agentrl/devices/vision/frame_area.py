"""Boxes on a frame: conversion between [0, 1] and pixels, and validation."""

import numpy as np

from agentrl.devices.screen_regions import Box
from agentrl.types import Image

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


def check_frame(frame: Image) -> None:
    """Check the type and shape of a frame.

    Raises:
        ValueError: it is not uint8[H, W, 3] with at least one pixel.
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8:
        kind = getattr(frame, "dtype", type(frame).__name__)
        raise ValueError(f"a frame must be uint8[H, W, 3], not {kind}")
    if frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise ValueError(f"a frame must be uint8[H, W, 3], not uint8{list(frame.shape)}")


def pixels_in(frame: Image, box: Box) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a box in pixels; it contains at least one pixel.

    Raises:
        ValueError: an invalid frame or box.
    """
    check_frame(frame)
    left, top, right, bottom = box
    if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
        raise ValueError(f"{box} is not a box: left, top, right, bottom in [0, 1]")
    height, width = frame.shape[:2]
    x, y = min(round(left * width), width - 1), min(round(top * height), height - 1)
    return x, y, max(round(right * width), x + 1), max(round(bottom * height), y + 1)


def cut(frame: Image, box: Box) -> Image:
    """The part of a frame in a box, uint8[h, w, 3], not copied.

    Raises:
        ValueError: an invalid frame or box.
    """
    left, top, right, bottom = pixels_in(frame, box)
    return frame[top:bottom, left:right]


def box_of(frame: Image, left: float, top: float, width: float, height: float) -> Box:
    """Convert a rectangle in pixels to a box in [0, 1]."""
    high, wide = frame.shape[:2]
    return (
        max(left / wide, 0.0),
        max(top / high, 0.0),
        min((left + width) / wide, 1.0),
        min((top + height) / high, 1.0),
    )


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes, in [0, 1]."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return 0.0
    both = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    return wide * high / (both - wide * high)
