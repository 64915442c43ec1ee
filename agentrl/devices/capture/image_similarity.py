"""Compares two pictures of which one may be compressed."""

import cv2
import numpy as np

from agentrl.types import Image

_BLOCK = 16
_TOLERANCE = 24
_SHARE = 0.01
"""Largest fraction of blocks that may differ by more than the tolerance in equal pictures."""


def images_match(one: Image, other: Image) -> bool:
    """Whether two pictures are equal up to compression artifacts."""
    return block_difference(one, other) <= _SHARE


def block_difference(one: Image, other: Image) -> float:
    """Fraction of blocks that differ by more than compression explains; 1 for different sizes."""
    if one.shape != other.shape:
        return 1.0
    small = (max(1, one.shape[1] // _BLOCK), max(1, one.shape[0] // _BLOCK))
    blocks = [cv2.resize(picture, small, interpolation=cv2.INTER_AREA) for picture in (one, other)]
    return float(np.mean((cv2.absdiff(*blocks) > _TOLERANCE).any(axis=2)))
