"""Colours on a frame: how much of a box has one, and where.

Colours are compared as distances in CIE L*a*b*, in which equal steps look equally large: 2 is
barely seen, black and white are 100 apart. JPEG and H.264 move flat colours by a few.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import Box
from agentrl.devices.vision.frame_area import WHOLE, box_of, check_frame, cut
from agentrl.types import Image

Colour = tuple[int, int, int]
"""Red, green and blue, in [0, 255]."""

TOLERANCE = 20.0
"""Farther than compression moves a colour, nearer than two that are meant to be told apart."""
_SAMPLED = 32
"""Rows or columns of a box, whichever are fewer, that are enough to tell its colour."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Region:
    """Neighbouring pixels of one colour."""

    box: Box
    area: float
    """Share of the frame that its pixels take."""


def distances(picture: Image, colour: Colour) -> NDArray[np.float32]:
    """How far each pixel is from a colour: float32[H, W] >= 0, in L*a*b* (CIE 1976)."""
    return _far(lightness_and_colour(picture), colour)


def share_of(
    frame: Image, colour: Colour, box: Box = WHOLE, *, tolerance: float = TOLERANCE
) -> float:
    """The share of a box's pixels that have a colour, in [0, 1].

    Args:
        frame: uint8[H, W, 3].
        colour: RGB.
        box: where to look.
        tolerance: the largest distance that is still this colour.

    Raises:
        ValueError: no frame, or no box.
    """
    return float(np.mean(distances(cut(frame, box), colour) <= tolerance))


def regions_of(
    frame: Image, colour: Colour, *, tolerance: float = TOLERANCE, min_area: float = 1e-4
) -> tuple[Region, ...]:
    """Where a colour is: connected regions, the largest first.

    Args:
        frame: uint8[H, W, 3].
        colour: RGB.
        tolerance: the largest distance that is still this colour.
        min_area: share of the frame below which a region is left out.

    Raises:
        ValueError: no frame.
    """
    check_frame(frame)
    has = (distances(frame, colour) <= tolerance).astype(np.uint8)
    _, _, found, _ = cv2.connectedComponentsWithStats(has)
    regions = [
        Region(box=box_of(frame, left, top, wide, high), area=pixels / has.size)
        for left, top, wide, high, pixels in found[1:].tolist()  # the first is all the rest
        if pixels >= min_area * has.size
    ]
    return tuple(sorted(regions, key=lambda region: -region.area))


def nearest(
    frame: Image,
    palette: Mapping[str, Colour],
    box: Box = WHOLE,
    *,
    tolerance: float = TOLERANCE,
    share: float = 0.5,
) -> str | None:
    """The name of the colour that most of a box has; None where none of them has that much.

    Args:
        frame: uint8[H, W, 3].
        palette: RGB by name. A pixel belongs to the nearest, if that is within the tolerance.
        box: where to look.
        tolerance: the largest distance that is still a colour.
        share: of the box's pixels that must have it.

    Raises:
        ValueError: no frame, no box or no colour.
    """
    if not palette:
        raise ValueError("the palette is empty: name at least one colour")
    part = cut(frame, box)
    step = max(1, min(part.shape[:2]) // _SAMPLED)
    seen = lightness_and_colour(part[::step, ::step])
    each = np.stack([_far(seen, colour) for colour in palette.values()])
    first = each.argmin(axis=0)[each.min(axis=0) <= tolerance]
    counts = np.bincount(first, minlength=len(palette))
    most = int(counts.argmax())
    enough = counts[most] >= share * each[0].size
    return list(palette)[most] if enough else None


def lightness_and_colour(picture: Image) -> NDArray[np.float32]:
    """float32[H, W, 3]: L in [0, 100], a and b around 0."""
    scaled = picture.astype(np.float32) / 255
    return cast("NDArray[np.float32]", cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB))


def _far(seen: NDArray[np.float32], colour: Colour) -> NDArray[np.float32]:
    wanted = lightness_and_colour(np.array([[colour]], np.uint8))
    return cast("NDArray[np.float32]", np.sqrt(((seen - wanted) ** 2).sum(axis=2)))
