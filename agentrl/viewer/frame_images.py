"""Recorded frames as PNG, and as small WebP images for lists."""

from functools import lru_cache

import cv2

from agentrl.replay import Run
from agentrl.types import Image

WIDTHS = (96, 192, 384)
"""Available widths of small images, in pixels."""
_QUALITY = 80
_MAX_HEIGHT = 16383
"""Largest height of a WebP, in pixels."""


class FrameImages:
    """The frames of a run, at full size and scaled down.

    Args:
        run: the recorded run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scaled = lru_cache(maxsize=4096)(self._scale)

    def whole(self, frame_id: str) -> bytes | None:
        """A frame as PNG; None if it is missing or damaged."""
        return self._run.frame_bytes(frame_id)

    def small(self, frame_id: str, width: int) -> bytes | None:
        """A frame as WebP of at most this width; None if it is missing or damaged."""
        try:
            return self._scaled(frame_id, width)
        except LookupError:  # not cached, because the frame may still be queued for the disk
            return None

    def _scale(self, frame_id: str, width: int) -> bytes:
        if (image := self._run.frame(frame_id)) is None:
            raise LookupError(frame_id)
        return webp(image, width)


def webp(image: Image, width: int) -> bytes:
    """Encode an image as WebP, scaled down to a width and to the format's height limit."""
    height, full_width = image.shape[:2]
    scale = min(1.0, width / full_width, _MAX_HEIGHT / height)
    if scale < 1:
        size = (max(1, round(full_width * scale)), max(1, round(height * scale)))
        scaled = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    else:
        scaled = image
    done, encoded = cv2.imencode(
        ".webp", cv2.cvtColor(scaled, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_WEBP_QUALITY, _QUALITY)
    )
    assert done, f"cv2 cannot encode {scaled.shape}"
    return encoded.tobytes()
