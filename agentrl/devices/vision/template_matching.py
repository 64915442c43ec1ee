"""Finds a known picture on frames of any size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.devices.screen_regions import Box
from agentrl.devices.vision import frame_area
from agentrl.devices.vision.frame_area import WHOLE
from agentrl.devices.vision.template_scores import match_scores, resized, score_peaks
from agentrl.errors import ConfigError
from agentrl.types import Image

SCALES = (1.0, 0.95, 1.05)
"""Default scales: apps do not draw everything in proportion to the screen."""
_LEAST = 4
"""Smallest side of a scaled template, in pixels."""
_OPAQUE = 250
_FLAT = 2.0
"""Standard deviation, of 255, below which a template is too flat to be found."""


@dataclass(slots=True, kw_only=True, frozen=True, eq=False)
class Template:
    """A picture to look for, and the width of the screen that it was cut from.

    Raises:
        ValueError: an invalid picture, a mask of another size, or a single color.
    """

    pixels: Image
    """uint8[h, w, 3]"""
    screen_width: int
    """In pixels; on a screen of another width the picture is scaled accordingly."""
    mask: NDArray[np.uint8] | None = None
    """uint8[h, w], 255 where it is opaque and 0 where it is transparent; None: all opaque."""

    def __post_init__(self) -> None:
        frame_area.check_frame(self.pixels)
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
            raise ValueError("the template has a single color: look for colors instead")

    @classmethod
    def cut(cls, frame: Image, box: Box) -> "Template":
        """Cut a template from a box of a frame.

        Raises:
            ValueError: an invalid frame or box, or a single color.
        """
        return cls(pixels=frame_area.cut(frame, box).copy(), screen_width=frame.shape[1])

    @classmethod
    def read(cls, file: str | Path, screen_width: int) -> "Template":
        """Read a PNG; pixels that are more than half transparent are not compared.

        Raises:
            ConfigError: it cannot be read, or is too flat to be found.
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
    """In [-1, 1]; 1 is identical up to brightness and contrast."""
    scale: float
    """Relative to the size expected from the width of the screen."""


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
        template: what to look for.
        box: where to look: the smaller, the faster.
        scales: to try, relative to the size expected from the width of the frame.
        threshold: the lowest score that counts.
        max_overlap: of two matches with a larger intersection over union, the better is kept.
        most: maximum number of matches.

    Raises:
        ValueError: an invalid frame or box, or a scale that is not positive.
    """
    left, top, right, bottom = frame_area.pixels_in(frame, box)
    if not all(scale > 0 for scale in scales):
        raise ValueError(f"scales are {tuple(scales)}; each must be more than 0")
    part = frame[top:bottom, left:right].astype(np.float32)
    found = []
    for scale in scales:
        pixels, mask = _resized(template, scale * frame.shape[1] / template.screen_width)
        high, wide = pixels.shape[:2]
        if high > part.shape[0] or wide > part.shape[1] or min(high, wide) < _LEAST:
            continue
        if mask is not None and not mask.any():
            continue
        for score, x, y in score_peaks(match_scores(part, pixels, mask), threshold):
            match_box = frame_area.box_of(frame, left + x, top + y, wide, high)
            found.append(TemplateMatch(box=match_box, score=score, scale=scale))
    return _apart(found, max_overlap, most)


def _resized(
    template: Template, factor: float
) -> tuple[NDArray[np.float32], NDArray[np.uint8] | None]:
    pixels = resized(template.pixels, factor)
    if template.mask is None:
        return pixels, None
    # Where a pixel of the mask is no longer fully opaque, the background shows through.
    mask = resized(template.mask, factor) > _OPAQUE
    return pixels, np.where(mask, 255, 0).astype(np.uint8)


def _apart(found: list[TemplateMatch], max_overlap: float, most: int) -> tuple[TemplateMatch, ...]:
    taken: list[TemplateMatch] = []
    for match in sorted(found, key=lambda match: -match.score):
        if len(taken) == most:
            break
        if all(frame_area.overlap(match.box, other.box) <= max_overlap for other in taken):
            taken.append(match)
    return tuple(taken)
