"""Comparison of screenshots, which ignores some regions and noise."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import Box, checked_box
from agentrl.types import Image

_TOLERANCE = 8
"""Largest channel difference that still counts as equal."""
_BAND = 128
"""Number of rows per comparison, which stops at the first band that differs."""


class ScreenComparison:
    """Compares screenshots of one screen, ignoring some regions."""

    def __init__(self, mask_top: float = 0.0, ignore: Sequence[Box] = ()) -> None:
        """Set the regions to ignore.

        Args:
            mask_top: fraction of the height to ignore at the top: the status bar with its clock.
            ignore: regions to ignore.

        Raises:
            ValueError: a region is invalid.
        """
        for box in ignore:
            checked_box(box)
        self.mask_top = mask_top
        self._ignore = tuple(ignore)
        self._mask: NDArray[np.uint8] | None = None

    def matches(self, one: Image, other: Image) -> bool:
        """Return whether two screenshots are equal outside the ignored regions, up to noise."""
        if one is other:  # captures return the same array while nothing changes
            return True
        if one.shape != other.shape:
            return False
        mask = self._mask_for(one)
        bands = range(round(one.shape[0] * self.mask_top), one.shape[0], _BAND)
        for rows in (slice(top, top + _BAND) for top in bands):
            shown = None if mask is None else mask[rows]
            if cv2.norm(one[rows], other[rows], cv2.NORM_INF, shown) > _TOLERANCE:
                return False
        return True

    def _mask_for(self, picture: Image) -> "NDArray[np.uint8] | None":
        if not self._ignore:
            return None
        height, width = picture.shape[:2]
        if self._mask is None or self._mask.shape != (height, width):
            self._mask = np.full((height, width), 255, np.uint8)
            # Round outward, because a partly ignored pixel may change with the ignored part.
            for left, top, right, bottom in self._ignore:
                rows = slice(int(top * height), int(np.ceil(bottom * height)))
                self._mask[rows, int(left * width) : int(np.ceil(right * width))] = 0
        return self._mask
