"""A picture from its pieces: what never changes is drawn once, and so is what seldom does."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.types import Image

Piece = tuple[Callable[..., None], tuple[Any, ...]]
"""How a part of the picture is drawn, and all that it shows: the key of what is kept.

It is called with the picture, uint8[H, W, 3], to be drawn on in place, and with what it shows.
"""


def draw(ground: Piece, pieces: Iterable[Piece], width: int, height: int) -> Image:
    """Draw a picture, stroke by stroke on a ground that is kept.

    Args:
        ground: draws the whole picture where nothing of what changes is there.
        pieces: one after the other.
        width: in pixels.
        height: in pixels.

    Returns:
        uint8[height, width, 3]; the caller owns it.
    """
    picture = _backdrop(ground, width, height).copy()
    for stroke, shown in pieces:
        stroke(picture, *shown)
    return picture


def put_together(ground: Piece, pieces: Iterable[Piece], width: int, height: int) -> Image:
    """The same picture as `draw`'s, ten times as fast where few different things can be shown.

    Each piece is drawn once, and kept. Pieces must not overlap.
    """
    picture = _backdrop(ground, width, height).copy()
    for piece in pieces:
        top, left, pixels = _drawn(piece, ground, width, height)
        picture[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return picture


@lru_cache(maxsize=512)
def _drawn(piece: Piece, ground: Piece, width: int, height: int) -> tuple[int, int, Image]:
    """One part on the backdrop: its top, its left, and what it changes there."""
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
    """What never changes; not to be written to."""
    stroke, shown = ground
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    stroke(picture, *shown)
    picture.flags.writeable = False
    return picture
