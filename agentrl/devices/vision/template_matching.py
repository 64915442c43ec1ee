"""Finds a known picture on frames of any size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import (
    WHOLE,
    Box,
    box_to_pixels,
    check_frame,
    crop,
    iou,
    pixels_to_box,
)
from agentrl.errors import ConfigError
from agentrl.types import Image

SCALES = (1.0, 0.95, 1.05)
"""Default scales to try, since apps do not scale everything in proportion to the screen."""
_LEAST = 4
"""Smallest side of a scaled template, in pixels."""
_OPAQUE = 250
_FLAT = 2.0
"""Standard deviation, on a scale of 255, below which a template is too flat to be found."""
_NOISE = 2.0
"""Standard deviation, on a scale of 255, below which an area is flat and not compared."""
_FAINT = 0.25
"""Minimum contrast of a match, as a fraction of the template's contrast."""

Grid = NDArray[np.float32]
Numbers = NDArray[np.uint8] | NDArray[np.float32]


@dataclass(slots=True, kw_only=True, frozen=True, eq=False)
class Template:
    """A picture to look for, and the width of the screen that it was cropped from.

    Raises:
        ValueError: the picture is invalid or has a single color, or the mask's size differs.
    """

    pixels: Image
    """uint8[h, w, 3]"""
    screen_width: int
    """Width of the screen in pixels; on other screens the picture is scaled accordingly."""
    mask: NDArray[np.uint8] | None = None
    """uint8[h, w], 255 where the picture is opaque and 0 where transparent; None if all opaque."""

    def __post_init__(self) -> None:
        check_frame(self.pixels)
        if self.screen_width < 1:
            raise ValueError(f"screen_width is {self.screen_width}; it must be at least 1")
        shown = self.pixels.reshape(-1, 3)
        if self.mask is not None:
            if self.mask.shape != self.pixels.shape[:2] or self.mask.dtype != np.uint8:
                sides = list(self.pixels.shape[:2])
                raise ValueError(
                    f"the mask is {self.mask.dtype}{list(self.mask.shape)}, not uint8{sides}"
                )
            shown = self.pixels[self.mask > _OPAQUE]
        if not shown.size or shown.mean(axis=1).std() < _FLAT:
            raise ValueError("the template has a single color; use color_regions instead")

    @classmethod
    def crop(cls, frame: Image, box: Box) -> "Template":
        """Crop a template from a box of a frame.

        Raises:
            ValueError: the frame or box is invalid, or the crop has a single color.
        """
        return cls(pixels=crop(frame, box).copy(), screen_width=frame.shape[1])

    @classmethod
    def read(cls, file: str | Path, screen_width: int) -> "Template":
        """Read a PNG; pixels that are more than half transparent are not compared.

        Raises:
            ConfigError: the file cannot be read, or the picture is too flat to be found.
        """
        data = cv2.imread(str(file), cv2.IMREAD_UNCHANGED) if Path(file).is_file() else None
        if data is None or data.dtype != np.uint8:
            raise ConfigError(f"{file} is not an 8-bit picture; save the template as a PNG")
        if data.ndim == 2:
            data = cv2.cvtColor(data, cv2.COLOR_GRAY2BGR)
        mask = None
        if data.shape[2] == 4 and data[..., 3].min() < 255:
            mask = np.where(data[..., 3] > 127, 255, 0).astype(np.uint8)
        pixels = cv2.cvtColor(data[..., :3].copy(), cv2.COLOR_BGR2RGB).astype(np.uint8)
        try:
            return cls(pixels=pixels, screen_width=screen_width, mask=mask)
        except ValueError as error:
            raise ConfigError(f"{file}: {error}") from error


@dataclass(slots=True, kw_only=True, frozen=True)
class TemplateMatch:
    """One position where a template was found."""

    box: Box
    score: float
    """Correlation in [-1, 1]; 1 is identical up to brightness and contrast."""
    scale: float
    """Scale relative to the size expected from the width of the screen."""


def find_template(
    frame: Image,
    template: Template,
    box: Box = WHOLE,
    *,
    scales: Sequence[float] = SCALES,
    threshold: float = 0.8,
    max_overlap: float = 0.3,
    most: int = 50,
) -> tuple[TemplateMatch, ...]:
    """Find a template on a frame, the best match first.

    Args:
        frame: uint8[H, W, 3] of any size.
        template: template to find.
        box: where to look; a smaller box is faster.
        scales: scales to try, relative to the size expected from the width of the frame.
        threshold: the lowest score that counts.
        max_overlap: of two matches with a larger intersection over union, keep only the better.
        most: maximum number of matches.

    Raises:
        ValueError: the frame or box is invalid, or a scale is not positive.
    """
    left, top, right, bottom = box_to_pixels(frame, box)
    if not all(scale > 0 for scale in scales):
        raise ValueError(f"scales are {tuple(scales)}; each must be more than 0")
    part = frame[top:bottom, left:right].astype(np.float32)
    found = []
    for scale in scales:
        pixels, mask = _scaled(template, scale * frame.shape[1] / template.screen_width)
        high, wide = pixels.shape[:2]
        if high > part.shape[0] or wide > part.shape[1] or min(high, wide) < _LEAST:
            continue
        if mask is not None and not mask.any():
            continue
        for score, x, y in score_peaks(match_scores(part, pixels, mask), threshold):
            match_box = pixels_to_box(frame, left + x, top + y, wide, high)
            found.append(TemplateMatch(box=match_box, score=score, scale=scale))
    return _apart(found, max_overlap, most)


def _scaled(
    template: Template, factor: float
) -> tuple[NDArray[np.float32], NDArray[np.uint8] | None]:
    pixels = resized(template.pixels, factor)
    if template.mask is None:
        return pixels, None
    # Where a mask pixel is no longer fully opaque, the background shows through.
    mask = resized(template.mask, factor) > _OPAQUE
    return pixels, np.where(mask, 255, 0).astype(np.uint8)


def _apart(found: list[TemplateMatch], max_overlap: float, most: int) -> tuple[TemplateMatch, ...]:
    taken: list[TemplateMatch] = []
    for match in sorted(found, key=lambda match: -match.score):
        if len(taken) == most:
            break
        if all(iou(match.box, other.box) <= max_overlap for other in taken):
            taken.append(match)
    return tuple(taken)


def match_scores(
    picture: NDArray[np.float32],
    template: NDArray[np.float32],
    mask: NDArray[np.uint8] | None = None,
) -> Grid:
    """Compute a template's normalized correlation at every position, ignoring brightness.

    Args:
        picture: float32[H, W] or [H, W, 3] in [0, 255].
        template: float32[h, w] or [h, w, 3], not larger than the picture.
        mask: uint8[h, w], 0 where the template is transparent.

    Returns:
        float32[H - h + 1, W - w + 1] in [-1, 1]; 0 where the picture is flat.
    """
    if mask is None:
        found = cv2.matchTemplate(picture, template, cv2.TM_CCOEFF_NORMED)
        least = max(_NOISE, _FAINT * float(_gray(template).std()))
    else:
        shown = (mask > 0).astype(np.float32)
        weights = shown if template.ndim == 2 else np.repeat(shown[..., None], template.shape[2], 2)
        found = cv2.matchTemplate(picture, template, cv2.TM_CCOEFF_NORMED, mask=weights)
        least = max(_NOISE, _FAINT * float(_gray(template)[mask > 0].std()))
    contrast = _contrast(_gray(picture), template.shape[:2], mask)
    # Flat areas divide by almost 0, so their results are not valid scores.
    sound = np.isfinite(found) & (np.abs(found) <= 1.01) & (contrast >= least)
    return np.where(sound, np.clip(found, -1, 1), 0).astype(np.float32)


def score_peaks(grid: Grid, threshold: float) -> list[tuple[float, int, int]]:
    """Return local maxima above a threshold as score, x and y, the best first."""
    higher = cv2.dilate(grid, np.ones((3, 3), np.uint8))
    ys, xs = np.nonzero((grid >= threshold) & (grid >= higher))
    found = zip(grid[ys, xs].tolist(), xs.tolist(), ys.tolist(), strict=True)
    return sorted(found, reverse=True)


def resized(picture: Numbers, factor: float) -> NDArray[np.float32]:
    """Scale a picture by a factor, float32; each side keeps at least one pixel."""
    high, wide = (max(1, round(side * factor)) for side in picture.shape[:2])
    if (high, wide) == picture.shape[:2]:
        return picture.astype(np.float32)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return cv2.resize(picture, (wide, high), interpolation=how).astype(np.float32)


def _gray(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    if picture.ndim == 2:
        return picture
    return cast("NDArray[np.float32]", picture.mean(axis=2, dtype=np.float32))


def _contrast(
    gray: NDArray[np.float32], size: tuple[int, int], mask: NDArray[np.uint8] | None
) -> Grid:
    """Return the standard deviation within every window: float32[H - h + 1, W - w + 1]."""
    high, wide = size
    shown = np.ones(size, np.float32) if mask is None else (mask > 0).astype(np.float32)
    # Without a mask, a box filter computes the means much faster than a correlation.
    if mask is None:
        rows, columns = slice(gray.shape[0] - high + 1), slice(gray.shape[1] - wide + 1)

        def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
            blurred = cv2.blur(values, (wide, high), anchor=(0, 0))
            return cast("NDArray[np.float32]", blurred[rows, columns])
    else:

        def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
            found = cv2.matchTemplate(values, shown, cv2.TM_CCORR)
            return cast("NDArray[np.float32]", found / shown.sum())

    spread = mean(gray * gray) - mean(gray) ** 2
    return cast("Grid", np.sqrt(np.maximum(spread, 0)))
