"""Template matching: normalized correlation at every position, robust to flat areas."""

from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

_NOISE = 2.0
"""Standard deviation, of 255, below which an area is flat and not compared."""
_FAINT = 0.25
"""Minimum contrast of a match, as a fraction of the template's contrast."""

Grid = NDArray[np.float32]
Numbers = NDArray[np.uint8] | NDArray[np.float32]


def match_scores(
    picture: NDArray[np.float32],
    template: NDArray[np.float32],
    mask: NDArray[np.uint8] | None = None,
) -> Grid:
    """Normalized correlation of a template at every position, independent of brightness.

    Args:
        picture: float32[H, W] or [H, W, 3] in [0, 255].
        template: float32[h, w] or [h, w, 3], not larger.
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
    # Flat areas divide by almost 0, and the results are not scores.
    sound = np.isfinite(found) & (np.abs(found) <= 1.01) & (contrast >= least)
    return np.where(sound, np.clip(found, -1, 1), 0).astype(np.float32)


def score_peaks(grid: Grid, threshold: float) -> list[tuple[float, int, int]]:
    """Local maxima above a threshold: score, x and y, the best first."""
    higher = cv2.dilate(grid, np.ones((3, 3), np.uint8))
    ys, xs = np.nonzero((grid >= threshold) & (grid >= higher))
    found = zip(grid[ys, xs].tolist(), xs.tolist(), ys.tolist(), strict=True)
    return sorted(found, reverse=True)


def resized(picture: Numbers, factor: float) -> NDArray[np.float32]:
    """A picture scaled by a factor, float32; each side keeps at least one pixel."""
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
    """The standard deviation within every window: float32[H - h + 1, W - w + 1]."""
    high, wide = size
    shown = np.ones(size, np.float32) if mask is None else (mask > 0).astype(np.float32)
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
