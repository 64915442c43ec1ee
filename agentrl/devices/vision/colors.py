"""Colors on a frame: how much of a box has a color, and where.

Colors are compared by their distance in CIE L*a*b*, which is perceptually uniform: 2 is barely
visible, black and white are 100 apart. JPEG and H.264 shift flat colors by a few units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import WHOLE, Box, check_frame, crop, pixels_to_box
from agentrl.types import Image

Color = tuple[int, int, int]
"""Red, green and blue, in [0, 255]."""

TOLERANCE = 20.0
"""Default tolerance: above the shift caused by compression, below that between distinct colors."""
_SAMPLED = 32
"""Number of samples along the shorter side of a box when finding its color."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ColorRegion:
    """Connected pixels of one color."""

    box: Box
    area: float
    """Fraction of the frame covered by the region's pixels."""


def color_distances(picture: Image, color: Color) -> NDArray[np.float32]:
    """Return each pixel's distance from a color: float32[H, W] >= 0, in L*a*b* (CIE 1976)."""
    return _distance(to_lab(picture), color)


def color_fraction(
    frame: Image, color: Color, box: Box = WHOLE, *, tolerance: float = TOLERANCE
) -> float:
    """Return the fraction of a box's pixels that have a color, in [0, 1].

    Args:
        frame: uint8[H, W, 3].
        color: RGB.
        box: where to look.
        tolerance: the largest distance that counts as this color.

    Raises:
        ValueError: the frame or box is invalid.
    """
    return float(np.mean(color_distances(crop(frame, box), color) <= tolerance))


def color_regions(
    frame: Image, color: Color, *, tolerance: float = TOLERANCE, min_area: float = 1e-4
) -> tuple[ColorRegion, ...]:
    """Find connected regions of a color, the largest first.

    Args:
        frame: uint8[H, W, 3].
        color: RGB.
        tolerance: the largest distance that counts as this color.
        min_area: fraction of the frame below which a region is dropped.

    Raises:
        ValueError: the frame is invalid.
    """
    check_frame(frame)
    has = (color_distances(frame, color) <= tolerance).astype(np.uint8)
    _, _, found, _ = cv2.connectedComponentsWithStats(has)
    regions = [
        ColorRegion(box=pixels_to_box(frame, left, top, wide, high), area=pixels / has.size)
        for left, top, wide, high, pixels in found[1:].tolist()  # component 0 is the background
        if pixels >= min_area * has.size
    ]
    return tuple(sorted(regions, key=lambda region: -region.area))


def dominant_color(
    frame: Image,
    palette: Mapping[str, Color],
    box: Box = WHOLE,
    *,
    tolerance: float = TOLERANCE,
    share: float = 0.5,
) -> str | None:
    """Return the name of a box's most frequent palette color; None if it is too rare.

    Args:
        frame: uint8[H, W, 3].
        palette: maps names to RGB. A pixel counts as the nearest color within the tolerance.
        box: where to look.
        tolerance: the largest distance that counts as a color.
        share: minimum fraction of the box's pixels that must have the color.

    Raises:
        ValueError: the frame or box is invalid, or the palette is empty.
    """
    if not palette:
        raise ValueError("the palette is empty; pass at least one color")
    part = crop(frame, box)
    # A grid of samples is enough to find the color of most of a box.
    step = max(1, min(part.shape[:2]) // _SAMPLED)
    lab = to_lab(part[::step, ::step])
    each = np.stack([_distance(lab, color) for color in palette.values()])
    first = each.argmin(axis=0)[each.min(axis=0) <= tolerance]
    counts = np.bincount(first, minlength=len(palette))
    most = int(counts.argmax())
    enough = counts[most] >= share * each[0].size
    return list(palette)[most] if enough else None


def to_lab(picture: Image) -> NDArray[np.float32]:
    """Convert to L*a*b*, float32[H, W, 3]: L in [0, 100], a and b around 0."""
    scaled = picture.astype(np.float32) / 255
    return cast("NDArray[np.float32]", cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB))


def _distance(lab: NDArray[np.float32], color: Color) -> NDArray[np.float32]:
    target = to_lab(np.array([[color]], np.uint8))
    return cast("NDArray[np.float32]", np.sqrt(((lab - target) ** 2).sum(axis=2)))
