"""Black out what nobody is to see in a record."""

import math
from collections.abc import Sequence

import numpy as np

from agentrl.types import Image

Box = Sequence[float]
"""Left, top, right and bottom of a region, in [0, 1] of the picture."""

_MARGIN = 0.005
"""Share of a side that is masked around a region: a scaled picture blends neighbours."""
_LEAST_MARGIN = 2


def masked(image: Image, boxes: Sequence[Box]) -> Image:
    """The picture with regions blacked out.

    Args:
        image: uint8[H, W, 3]; is not changed.
        boxes: regions.

    Returns:
        uint8[H, W, 3], a copy; the picture itself where there are no regions.
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
