"""Reads rows of known glyphs, such as digits, by their shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import Box, crop
from agentrl.devices.vision.colors import to_lab
from agentrl.devices.vision.template_matching import match_scores, resized, score_peaks
from agentrl.types import Image

_READ_AT = 28
"""Height in pixels to which the tallest glyph is scaled; a larger one is no more accurate."""
_CONTRAST = 15.0
"""Minimum L*a*b* distance of ink from the background; compression noise stays below it."""
_INK = 0.35
"""Minimum ink of a pixel that is part of a glyph."""
_SIDE, _ABOVE = 1, 2
"""Empty pixels around a glyph that count as part of it, so a minus does not match in a plus."""
_LEAST = 5
"""Height in pixels below which text cannot be read."""

Ink = NDArray[np.float32]
"""Amount of ink on each pixel, [h, w] in [0, 1]."""


@dataclass(slots=True, kw_only=True, frozen=True)
class GlyphReading:
    """Text read from left to right."""

    text: str
    """Text that was read; empty if there is no ink or no known glyph."""
    score: float
    """Score of the worst glyph, in [-1, 1]; 1 if there is no glyph."""
    covered: float
    """Fraction of the ink that the glyphs explain; 1 if there is no ink."""


class Glyphs:
    """Glyphs whose shapes are known, of one font and size.

    Args:
        inks: uint8[h, w] for each glyph: the amount of ink on each pixel, cropped to the glyph.
        screen_width: width in pixels of the screen on which the glyphs have this size.

    Raises:
        ValueError: there are no glyphs, or a glyph has no ink.
    """

    def __init__(self, inks: Mapping[str, NDArray[np.uint8]], screen_width: int) -> None:
        if not inks or screen_width < 1:
            raise ValueError(
                "at least one glyph and a screen width of at least 1 are required, got "
                f"{len(inks)} glyphs and a width of {screen_width}"
            )
        self.screen_width = screen_width
        self._inks = {sign: _trimmed(sign, ink) for sign, ink in inks.items()}
        self._tallest = max(ink.shape[0] for ink in self._inks.values())
        self._at = lru_cache(maxsize=16)(self._resized)

    @classmethod
    def crop(cls, frame: Image, boxes: Mapping[str, Box]) -> "Glyphs":
        """Crop glyphs from a screenshot, each from its own box with some background around it.

        Raises:
            ValueError: the frame or a box is invalid, or a box is empty.
        """
        inks = {sign: ink_of(crop(frame, box)) * 255 for sign, box in boxes.items()}
        return cls({s: ink.astype(np.uint8) for s, ink in inks.items()}, frame.shape[1])

    def read(self, frame: Image, box: Box, *, threshold: float = 0.75) -> GlyphReading:
        """Read the row of glyphs in a box that contains nothing else.

        Args:
            frame: uint8[H, W, 3] of any size; the background of the box has one color.
            box: where to look.
            threshold: the lowest score that counts as a glyph.

        Raises:
            ValueError: the frame or box is invalid.
        """
        part = crop(frame, box)
        scale = frame.shape[1] / self.screen_width
        height = min(_READ_AT, round(self._tallest * scale))
        if height < _LEAST:
            return GlyphReading(text="", score=0.0, covered=0.0)
        factor = height / (self._tallest * scale)
        # The padding lets a glyph at the edge of the box match, including its empty margin.
        ink = np.pad(ink_of(resized(part, factor).astype(np.uint8)), _ABOVE + 1)
        if not ink.any():
            return GlyphReading(text="", score=1.0, covered=1.0)
        found = []
        for sign, glyph in self._at(scale * factor).items():
            high, wide = glyph.shape
            if high <= ink.shape[0] and wide <= ink.shape[1]:
                fits = match_scores(ink * 255, glyph * 255)
                found += [
                    _Sign(sign, score, x, y, wide, high)
                    for score, x, y in score_peaks(fits, threshold)
                ]
        return _row(_apart(found), ink)

    def _resized(self, factor: float) -> dict[str, Ink]:
        margin = ((_ABOVE, _ABOVE), (_SIDE, _SIDE))
        inks = {sign: ink.astype(np.float32) / np.float32(255) for sign, ink in self._inks.items()}
        return {sign: np.pad(resized(ink, factor), margin) for sign, ink in inks.items()}


def ink_of(part: Image) -> Ink:
    """Return each pixel's normalized distance from the background (the median): [h, w] in [0, 1].

    All zeros if nothing stands out.
    """
    # The median is the background if the glyphs cover less than half of the box.
    lab = to_lab(part)
    background = np.median(lab.reshape(-1, 3), axis=0)
    distance = np.asarray(np.linalg.norm(lab - background, axis=2), np.float32)
    most = float(distance.max())
    if most < _CONTRAST:
        return np.zeros(distance.shape, np.float32)
    return (distance / most).astype(np.float32)


@dataclass(slots=True, frozen=True)
class _Sign:
    text: str
    score: float
    x: int
    y: int
    wide: int
    high: int

    def overlap(self, other: "_Sign") -> float:
        """Return the overlap as a fraction of the narrower glyph's width."""
        both = min(self.x + self.wide, other.x + other.wide) - max(self.x, other.x)
        return max(both - 2 * _SIDE, 0) / (min(self.wide, other.wide) - 2 * _SIDE)


def _apart(found: list[_Sign]) -> list[_Sign]:
    """Keep the best glyph at each position, from left to right."""
    taken: list[_Sign] = []
    for sign in sorted(found, key=lambda sign: -sign.score):
        if all(sign.overlap(other) <= 0.25 for other in taken):
            taken.append(sign)
    return sorted(taken, key=lambda sign: sign.x)


def _row(signs: list[_Sign], ink: Ink) -> GlyphReading:
    if not signs:
        return GlyphReading(text="", score=0.0, covered=0.0)
    explained = np.zeros(ink.shape, bool)
    for sign in signs:
        explained[sign.y : sign.y + sign.high, sign.x : sign.x + sign.wide] = True
    there = ink >= _INK
    return GlyphReading(
        text="".join(sign.text for sign in signs),
        score=min(sign.score for sign in signs),
        covered=float(explained[there].mean()),
    )


def _trimmed(sign: str, ink: NDArray[np.uint8]) -> NDArray[np.uint8]:
    there = ink >= _INK * 255
    if ink.ndim != 2 or not there.any():
        raise ValueError(f"glyph {sign!r} has no ink or is not uint8[h, w]")
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
