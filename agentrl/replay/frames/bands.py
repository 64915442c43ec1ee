"""Cut screens into bands and hash them, so that unchanged parts are stored only once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xxhash

from agentrl.types import Image

ROWS = 64
"""Rows per band: a move in a game changes at most a fifth of a screen's bands."""


@dataclass(slots=True, frozen=True)
class BandedImage:
    """An image cut into bands from top to bottom; the last one may be shorter."""

    id: str
    """32 hexadecimal digits: the hash of the pixels and the shape."""
    pixels: Image
    """uint8[H, W, 3], contiguous."""
    digests: tuple[bytes, ...]
    """[ceil(H / ROWS)] hash of the width and the pixels of each band."""

    def bands(self) -> Iterator[tuple[bytes, Image]]:
        """Yield each band with its digest."""
        tops = range(0, len(self.pixels), ROWS)
        return zip(self.digests, (self.pixels[top : top + ROWS] for top in tops), strict=True)


def cut_into_bands(image: Image) -> BandedImage:
    """Cut an image in one pass over its pixels (0.2 ms at 720x1280).

    Args:
        image: uint8[H, W, 3], RGB.

    Raises:
        ValueError: the dtype or the shape is wrong.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ValueError(f"a frame is uint8[H, W, 3], not {image.dtype}{list(image.shape)}")
    pixels = np.ascontiguousarray(image)
    height, width, _ = pixels.shape
    digests = tuple(
        xxhash.xxh3_128_digest(pixels[top : top + ROWS].data, seed=width)
        for top in range(0, height, ROWS)
    )
    id = xxhash.xxh3_128_hexdigest(b"".join(digests), seed=height)
    return BandedImage(id, pixels, digests)
