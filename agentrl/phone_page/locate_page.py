"""Locates a page on a phone's screen by the pattern that the page shows."""

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

_FRAME = (230, 0, 130)
"""Color of the pattern's edge; nothing else this large has this color by chance."""
_CORNERS = ((0, 160, 0), (0, 90, 230), (250, 200, 0), (0, 200, 220))
_CELLS = 4
"""Cells of the center per direction: eight bits of the number, and the same bits inverted."""
_CLOSE = 48
"""Largest channel difference for a color to count as equal on another screen."""
_COVERED = 0.025
"""Fraction of the pattern that a cutout or round corner may cover: less than one bit."""
_NOISE = 8
"""Tolerated channel difference, in addition to the phone's own color deviation."""
_SLACK = 2
"""Tolerance for the aspect ratio of a scaled page, in pixels."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PagePosition:
    """The position of a page on its phone's screen, in pixels of a capture."""

    left: int
    top: int
    width: int
    height: int
    deviation: float = field(compare=False)
    """Color deviation of captures, per channel."""

    def crop(self, capture: Image) -> Image:
        """Return the part of a capture that shows the page."""
        return capture[self.top : self.top + self.height, self.left : self.left + self.width]

    def shows(self, capture: Image, page: Image) -> bool:
        """Return whether a capture shows exactly this page; scaled pages are not checked."""
        part = self.crop(capture)
        if page.shape[:2] != (self.height, self.width):
            return True
        if part.shape != page.shape:
            return False
        return bool(cv2.norm(part, page, cv2.NORM_INF) <= self.deviation + _NOISE)


def pattern(width: int, height: int, number: int) -> Image:
    """Draw the calibration pattern, uint8[height, width, 3], which encodes a number."""
    picture = np.full((height, width, 3), _FRAME, np.uint8)
    far_x, far_y = width - width // 4, height - height // 4
    for corner, color in enumerate(_CORNERS):
        left, top = (width // 8, far_x)[corner % 2], (height // 8, far_y)[corner // 2]
        picture[top : top + height // 8, left : left + width // 8] = color
    bits = (number & 0xFF) << 8 | ~number & 0xFF
    wide, tall = width // 2 // _CELLS, height // 2 // _CELLS
    for cell in range(_CELLS * _CELLS):
        left, top = width // 4 + cell % _CELLS * wide, height // 4 + cell // _CELLS * tall
        picture[top : top + tall, left : left + wide] = 255 * (bits >> cell & 1)
    return picture


def find_pattern(capture: Image, expected: Image) -> PagePosition | None:
    """Locate a pattern in a capture, at any scale; None if it is not there (yet)."""
    # At any scale of the page, the edge is the largest connected area of its color.
    low, high = (tuple(c + d for c in _FRAME) for d in (-_CLOSE, _CLOSE))
    edge = cv2.inRange(capture, low, high)
    count, labels, found, _ = cv2.connectedComponentsWithStats(edge, connectivity=8)
    if count < 2:
        return None
    largest = labels == 1 + int(found[1:, cv2.CC_STAT_AREA].argmax())
    left, width = _extent(largest.sum(axis=0))
    top, height = _extent(largest.sum(axis=1))
    if abs(width / expected.shape[1] * expected.shape[0] - height) > _SLACK:
        return None
    part = capture[top : top + height, left : left + width]
    scaled = cv2.resize(expected, (width, height), interpolation=cv2.INTER_AREA)
    difference = cv2.absdiff(part, scaled.astype(np.uint8, copy=False)).max(axis=2)
    if np.count_nonzero(difference > _CLOSE) > _COVERED * difference.size:
        return None
    # Ignore the covered part, such as a round corner, which is not a color deviation of the phone.
    deviation = float(np.percentile(difference, 100 * (1 - _COVERED)))
    return PagePosition(left=left, top=top, width=width, height=height, deviation=deviation)


def _extent(counts: NDArray[np.intp]) -> tuple[int, int]:
    """Find a side's start and length from the rows or columns mostly filled by the edge color.

    Adjacent content that happens to have the same color fills less of a row or column.
    """
    filled = np.flatnonzero(counts >= counts.max() / 2)
    return int(filled[0]), int(filled[-1] - filled[0]) + 1


def find_moved_page(capture: Image, page: Image, deviation: float) -> PagePosition | None:
    """Locate a moved page by its content; None if it is not there.

    Works only for an unscaled page.
    """
    height, width = page.shape[:2]
    if height > capture.shape[0] or width > capture.shape[1]:
        return None
    _, _, (left, top), _ = cv2.minMaxLoc(cv2.matchTemplate(capture, page, cv2.TM_SQDIFF))
    position = PagePosition(left=left, top=top, width=width, height=height, deviation=deviation)
    return position if position.shows(capture, page) else None
