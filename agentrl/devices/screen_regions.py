"""Regions of a screen, and comparing screenshots while ignoring what moves on its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a region, in [0, 1] of the screen."""

STATUS_BAR = 1 / 26
"""Height of the status bar with its clock, as a fraction of the screen."""
_TOLERANCE = 8
"""Largest difference of a channel that still counts as equal."""
_BAND = 128
"""Rows compared at once; comparing stops at the first band that differs."""
_SMALL = 0.02
"""Largest area, as a fraction of the screen, of a region ignored because it moves on its own."""
_NEIGHBORS = 9
"""Dilation in pixels that merges nearby changes, such as the parts of one digit."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ScreenRegion:
    """A part of the screen, each side in [0, 1]."""

    left: float
    top: float
    right: float
    bottom: float

    def contains(self, x: float, y: float) -> bool:
        """Whether a position on the screen lies inside."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        """Convert a position in [0, 1] of the region to one of the screen."""
        wide, tall = self.right - self.left, self.bottom - self.top
        return self.left + x * wide, self.top + y * tall


class ScreenComparison:
    """Compares screenshots of one screen, ignoring some regions."""

    def __init__(self, mask_top: float = 0.0, ignore: Sequence[Box] = ()) -> None:
        """Set the regions to ignore.

        Args:
            mask_top: fraction of the height to ignore at the top: the status bar with its clock.
            ignore: regions to ignore.

        Raises:
            ValueError: an invalid region.
        """
        for box in ignore:
            left, top, right, bottom = box
            if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
                raise ValueError(f"{box} is not a region: left, top, right, bottom in [0, 1]")
        self.mask_top = mask_top
        self._ignore = tuple(ignore)
        self._mask: NDArray[np.uint8] | None = None

    def matches(self, one: Image, other: Image) -> bool:
        """Whether two screenshots are equal outside the ignored regions, up to noise."""
        if one.shape != other.shape:
            return False
        mask = self._mask_for(one)
        bands = range(round(one.shape[0] * self.mask_top), one.shape[0], _BAND)
        for rows in (slice(top, top + _BAND) for top in bands):
            shown = None if mask is None else mask[rows]
            if cv2.norm(one[rows], other[rows], cv2.NORM_INF, shown) > _TOLERANCE:
                return False
        return True

    def ignoring(self, more: Sequence[Box]) -> "ScreenComparison":
        """A comparison that ignores more regions."""
        return ScreenComparison(self.mask_top, (*self._ignore, *more)) if more else self

    def _mask_for(self, picture: Image) -> "NDArray[np.uint8] | None":
        if not self._ignore:
            return None
        height, width = picture.shape[:2]
        if self._mask is None or self._mask.shape != (height, width):
            self._mask = np.full((height, width), 255, np.uint8)
            for left, top, right, bottom in self._ignore:
                rows = slice(int(top * height), int(np.ceil(bottom * height)))
                self._mask[rows, int(left * width) : int(np.ceil(right * width))] = 0
        return self._mask


def moving_regions(pictures: Sequence[Image]) -> tuple[Box, ...]:
    """The small regions that change on an untouched screen, such as a cursor or a clock.

    Larger moving regions are content, and are not included.
    """
    first = pictures[0]
    height, width = first.shape[:2]
    moved = np.zeros((height, width), np.uint8)
    for picture in pictures[1:]:
        if picture.shape != first.shape:
            return ()
        differs = (cv2.absdiff(first, picture) > _TOLERANCE).any(axis=2)
        moved |= differs.astype(np.uint8)
    grown = cv2.dilate(moved, np.ones((_NEIGHBORS, _NEIGHBORS), np.uint8))
    _, _, found, _ = cv2.connectedComponentsWithStats(grown)
    boxes = []
    for left, top, wide, high, _ in found[1:].tolist():  # component 0 is the background
        if wide * high <= _SMALL * width * height:
            right, bottom = (left + wide) / width, (top + high) / height
            boxes.append((left / width, top / height, right, bottom))
    return tuple(boxes)
