"""Recorded frames as a browser gets them."""

from functools import lru_cache

import cv2

from agentrl.replay import Run
from agentrl.types import Image

WIDTHS = (96, 192, 384)
"""Of small pictures, in pixels."""
_QUALITY = 80
_TALLEST = 16383
"""Of a WebP, in pixels."""


class Pictures:
    """The frames of a run, and small ones of them.

    Args:
        run: the recorded run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scaled = lru_cache(maxsize=4096)(self._scale)

    def whole(self, frame_id: str) -> bytes | None:
        """A PNG; None where it is not there, or is none."""
        return self._run.frame_bytes(frame_id)

    def small(self, frame_id: str, width: int) -> bytes | None:
        """A WebP so many pixels wide, no larger than the frame; None where there is none."""
        try:
            return self._scaled(frame_id, width)
        except LookupError:  # not kept: it may still be on its way to the disk
            return None

    def _scale(self, frame_id: str, width: int) -> bytes:
        if (image := self._run.frame(frame_id)) is None:
            raise LookupError(frame_id)
        return webp(image, width)


def webp(image: Image, width: int) -> bytes:
    """A picture, scaled down to a width if it is wider, or to what a WebP takes."""
    height, own = image.shape[:2]
    scale = min(1.0, width / own, _TALLEST / height)
    if scale < 1:
        size = (max(1, round(own * scale)), max(1, round(height * scale)))
        scaled = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    else:
        scaled = image
    done, encoded = cv2.imencode(
        ".webp", cv2.cvtColor(scaled, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_WEBP_QUALITY, _QUALITY)
    )
    assert done, f"cv2 cannot encode {scaled.shape}"
    return encoded.tobytes()
