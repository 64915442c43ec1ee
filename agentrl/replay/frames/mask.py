"""Black out private regions of the screen before it is recorded."""

import math
from collections.abc import Sequence

import numpy as np

from agentrl.types import Image

Box = Sequence[float]
"""Left, top, right and bottom of a region, in [0, 1] of the image."""

_MARGIN = 0.005
"""Fraction of a side masked around a region, because scaled images blend neighboring pixels."""
_LEAST_MARGIN = 2


def masked(image: Image, boxes: Sequence[Box]) -> Image:
    """Return the image with regions blacked out.

    Args:
        image: uint8[H, W, 3]; not modified.
        boxes: regions.

    Returns:
        uint8[H, W, 3], a copy; the image itself if there are no regions.
    """
    if not boxes:
        return image
    hidden = np.array(image)
    height, width = hidden.shape[:2]
    for left, top, right, bottom in boxes:
        rows, columns = _pixels(top, bottom, height), _pixels(left, right, width)
        hidden[rows, columns] = 0
    return hidden


def _pixels(start: float, end: float, length: int) -> slice:
    margin = max(_LEAST_MARGIN, math.ceil(_MARGIN * length))
    return slice(max(0, math.floor(start * length) - margin), math.ceil(end * length) + margin)
