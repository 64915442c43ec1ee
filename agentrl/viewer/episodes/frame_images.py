"""Frames as small images for the pages."""

from functools import lru_cache

import cv2

from agentrl.replay import Run
from agentrl.types import Image

WIDTHS = (96, 192, 384)
"""Available widths of small images, in pixels."""
_QUALITY = 80
_MAX_HEIGHT = 16383
"""Maximum height of a WebP image, in pixels."""


class FrameImages:
    """A run's frames, scaled down for lists."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scaled = lru_cache(maxsize=4096)(self._scale)

    def small(self, frame_id: str, width: int) -> bytes | None:
        """Return a frame as WebP of at most this width, or None if it is missing or damaged."""
        try:
            return self._scaled(frame_id, width)
        # Exceptions are not cached, as the frame may still be queued for the disk.
        except LookupError:
            return None

    def _scale(self, frame_id: str, width: int) -> bytes:
        if (image := self._run.frame(frame_id)) is None:
            raise LookupError(frame_id)
        return webp(image, width)


def webp(image: Image, width: int) -> bytes:
    """Encode an image as WebP, scaled down to a width and the format's maximum height."""
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
