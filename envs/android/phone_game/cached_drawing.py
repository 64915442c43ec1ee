"""Cached drawing of a screen: a fixed background plus pieces that change."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.types import Image

Piece = tuple[Callable[..., None], tuple[Any, ...]]
"""A drawing function and its arguments; the pair is also the cache key.

The function is called with the picture, uint8[H, W, 3], to draw on in place, and the arguments.
"""


def draw(ground: Piece, pieces: Iterable[Piece], width: int, height: int) -> Image:
    """Draw all pieces on a copy of the cached background, uint8[height, width, 3].

    The background is everything that does not change; the caller owns the copy.
    """
    picture = _backdrop(ground, width, height).copy()
    for stroke, shown in pieces:
        stroke(picture, *shown)
    return picture


def draw_cached(ground: Piece, pieces: Iterable[Piece], width: int, height: int) -> Image:
    """Like `draw`, but ten times as fast if there are few distinct pieces: each is drawn once.

    Pieces must not overlap.
    """
    picture = _backdrop(ground, width, height).copy()
    for piece in pieces:
        top, left, pixels = _drawn(piece, ground, width, height)
        picture[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return picture


@lru_cache(maxsize=512)
def _drawn(piece: Piece, ground: Piece, width: int, height: int) -> tuple[int, int, Image]:
    """Draw a piece on the background; return top, left and pixels of the area it changes."""
    stroke, shown = piece
    backdrop = _backdrop(ground, width, height)
    picture = backdrop.copy()
    stroke(picture, *shown)
    changed = picture != backdrop
    rows = np.flatnonzero(changed.reshape(height, -1).any(axis=1))
    if not rows.size:
        return 0, 0, picture[:0, :0].copy()
    columns = np.flatnonzero(changed[rows[0] : rows[-1] + 1].any(axis=0).any(axis=1))
    area = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].copy()
    return int(rows[0]), int(columns[0]), area


@lru_cache(maxsize=16)
def _backdrop(ground: Piece, width: int, height: int) -> Image:
    """Return the background, cached and read-only."""
    stroke, shown = ground
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    stroke(picture, *shown)
    picture.flags.writeable = False
    return picture
