"""Regions of a screen, and whether two pictures show the same but for what moves on its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a region, in [0, 1] of the screen."""

STATUS_BAR = 1 / 26
"""Share of the height, at the top, in which a phone shows its clock."""
_TOLERANCE = 8
"""Largest difference of a channel that is still the same picture."""
_BAND = 128
"""Rows that are compared at once: what follows the first difference is not looked at."""
_SMALL = 0.02
"""Share of the screen that a region may take which is left out because it moves on its own."""
_NEIGHBOURS = 9
"""Pixels around a change that belong to it: the parts of one digit are one region."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Region:
    """A part of the screen, each side in [0, 1]."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float) -> bool:
        """Whether a position on the screen lies in it."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        """A position in [0, 1] of the region as one of the screen."""
        wide, tall = self.right - self.left, self.bottom - self.top
        return self.left + x * wide, self.top + y * tall


class Comparison:
    """Compares pictures of one screen, some regions apart."""

    def __init__(self, mask_top: float = 0.0, ignore: Sequence[Box] = ()) -> None:
        """Leave regions out.

        Args:
            mask_top: share of the height that is not compared: the status bar with its clock.
            ignore: regions that are not compared.

        Raises:
            ValueError: a region that is none.
        """
        for box in ignore:
            left, top, right, bottom = box
            if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
                raise ValueError(f"{box} is no region: left, top, right, bottom in [0, 1]")
        self.mask_top = mask_top
        self._ignore = tuple(ignore)
        self._mask: NDArray[np.uint8] | None = None

    def same(self, one: Image, other: Image) -> bool:
        """Whether nothing that is compared differs."""
        if one.shape != other.shape:
            return False
        mask = self._mask_for(one)
        bands = range(round(one.shape[0] * self.mask_top), one.shape[0], _BAND)
        for rows in (slice(top, top + _BAND) for top in bands):
            shown = None if mask is None else mask[rows]
            if cv2.norm(one[rows], other[rows], cv2.NORM_INF, shown) > _TOLERANCE:
                return False
        return True

    def without(self, more: Sequence[Box]) -> "Comparison":
        """The same, with more regions left out."""
        return Comparison(self.mask_top, (*self._ignore, *more)) if more else self

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


def restless(pictures: Sequence[Image]) -> tuple[Box, ...]:
    """The small regions in which pictures of a screen that nobody touched differ.

    A blinking cursor and a running clock are such regions; what moves over more of the screen than
    that is no ornament, and is not among them.
    """
    first = pictures[0]
    height, width = first.shape[:2]
    moved = np.zeros((height, width), np.uint8)
    for picture in pictures[1:]:
        if picture.shape != first.shape:
            return ()
        differs = (cv2.absdiff(first, picture) > _TOLERANCE).any(axis=2)
        moved |= differs.astype(np.uint8)
    grown = cv2.dilate(moved, np.ones((_NEIGHBOURS, _NEIGHBOURS), np.uint8))
    _, _, found, _ = cv2.connectedComponentsWithStats(grown)
    boxes = []
    for left, top, wide, high, _ in found[1:].tolist():  # the first is what stands still
        if wide * high <= _SMALL * width * height:
            right, bottom = (left + wide) / width, (top + high) / height
            boxes.append((left / width, top / height, right, bottom))
    return tuple(boxes)
