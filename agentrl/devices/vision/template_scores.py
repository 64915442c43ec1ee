"""How well a small picture fits everywhere on a larger one."""

from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

_NOISE = 2.0
"""Standard deviation, of 255, below which a place is flat: its noise is not compared."""
_FAINT = 0.25
"""A place with less than this share of the wanted picture's contrast does not show it."""

Grid = NDArray[np.float32]
Numbers = NDArray[np.uint8] | NDArray[np.float32]


def scores(
    picture: NDArray[np.float32], wanted: NDArray[np.float32], mask: NDArray[np.uint8] | None = None
) -> Grid:
    """The correlation of a picture with every place of its size on another, brightness apart.

    Args:
        picture: float32[H, W] or [H, W, 3] in [0, 255].
        wanted: float32[h, w] or [h, w, 3], not larger.
        mask: uint8[h, w], 0 where `wanted` is transparent.

    Returns:
        float32[H - h + 1, W - w + 1] in [-1, 1]; 0 where the picture is flat.
    """
    if mask is None:
        found = cv2.matchTemplate(picture, wanted, cv2.TM_CCOEFF_NORMED)
        least = max(_NOISE, _FAINT * float(_grey(wanted).std()))
    else:
        shown = (mask > 0).astype(np.float32)
        weights = shown if wanted.ndim == 2 else np.repeat(shown[..., None], wanted.shape[2], 2)
        found = cv2.matchTemplate(picture, wanted, cv2.TM_CCOEFF_NORMED, mask=weights)
        least = max(_NOISE, _FAINT * float(_grey(wanted)[mask > 0].std()))
    contrast = _contrast(_grey(picture), wanted.shape[:2], mask)
    # Flat places divide by almost nothing: what comes of it is no score.
    sound = np.isfinite(found) & (np.abs(found) <= 1.01) & (contrast >= least)
    return np.where(sound, np.clip(found, -1, 1), 0).astype(np.float32)


def peaks(grid: Grid, threshold: float) -> list[tuple[float, int, int]]:
    """The places that fit better than all around them: score, x and y, the best first."""
    higher = cv2.dilate(grid, np.ones((3, 3), np.uint8))
    ys, xs = np.nonzero((grid >= threshold) & (grid >= higher))
    found = zip(grid[ys, xs].tolist(), xs.tolist(), ys.tolist(), strict=True)
    return sorted(found, reverse=True)


def resized(picture: Numbers, factor: float) -> NDArray[np.float32]:
    """A picture so many times as large, float32; each side keeps at least one pixel."""
    high, wide = (max(1, round(side * factor)) for side in picture.shape[:2])
    if (high, wide) == picture.shape[:2]:
        return picture.astype(np.float32)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return cv2.resize(picture, (wide, high), interpolation=how).astype(np.float32)


def _grey(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    if picture.ndim == 2:
        return picture
    return cast("NDArray[np.float32]", picture.mean(axis=2, dtype=np.float32))


def _contrast(
    grey: NDArray[np.float32], size: tuple[int, int], mask: NDArray[np.uint8] | None
) -> Grid:
    """The standard deviation within every place: float32[H - h + 1, W - w + 1]."""
    high, wide = size
    shown = np.ones(size, np.float32) if mask is None else (mask > 0).astype(np.float32)
    if mask is None:
        rows, columns = slice(grey.shape[0] - high + 1), slice(grey.shape[1] - wide + 1)

        def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
            blurred = cv2.blur(values, (wide, high), anchor=(0, 0))
            return cast("NDArray[np.float32]", blurred[rows, columns])
    else:

        def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
            found = cv2.matchTemplate(values, shown, cv2.TM_CCORR)
            return cast("NDArray[np.float32]", found / shown.sum())

    spread = mean(grey * grey) - mean(grey) ** 2
    return cast("Grid", np.sqrt(np.maximum(spread, 0)))
