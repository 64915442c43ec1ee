"""Whether two pictures show the same, one of them compressed."""

import cv2
import numpy as np

from agentrl.types import Image

_BLOCK = 16
_TOLERANCE = 24
_SHARE = 0.01
"""Of the blocks of two pictures of one screen, at most so many differ by more than that."""


def alike(one: Image, other: Image) -> bool:
    """Whether two pictures show the same, but for what compression does to them."""
    return difference(one, other) <= _SHARE


def difference(one: Image, other: Image) -> float:
    """The share of two pictures that differs by more than compression explains; 1 if all does."""
    if one.shape != other.shape:
        return 1.0
    small = (max(1, one.shape[1] // _BLOCK), max(1, one.shape[0] // _BLOCK))
    blocks = [cv2.resize(picture, small, interpolation=cv2.INTER_AREA) for picture in (one, other)]
    return float(np.mean((cv2.absdiff(*blocks) > _TOLERANCE).any(axis=2)))
