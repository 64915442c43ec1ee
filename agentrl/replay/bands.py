"""What successive screens have in common, so that it is compressed once."""

from collections import OrderedDict

import numpy as np
import xxhash

from agentrl.replay import png
from agentrl.types import Image

_ROWS = 64
_REMEMBERED_BYTES = 128 << 20
"""Of pixels that were compressed; what is kept of them is a fiftieth, on screens of apps."""


class BandEncoder:
    """Encodes pictures as PNG, and remembers the bands that it saw last.

    Screens change little from one to the next: a game's move touches a fifth of their bands or
    fewer. For one thread at a time.
    """

    def __init__(self) -> None:
        self._bands: OrderedDict[tuple[int, bytes], tuple[png.Band, int]] = OrderedDict()
        self._nbytes = 0

    def encode(self, image: Image) -> bytes:
        """The PNG of uint8[H, W, 3], RGB."""
        pixels = np.ascontiguousarray(image)
        parts = (pixels[top : top + _ROWS] for top in range(0, len(pixels), _ROWS))
        return png.join(image.shape[1], [self._band(part) for part in parts])

    def _band(self, part: Image) -> png.Band:
        key = (part.shape[1], xxhash.xxh3_128_digest(part.data))
        if key in self._bands:
            self._bands.move_to_end(key)
            return self._bands[key][0]
        band = png.compress(part)
        self._bands[key] = band, part.nbytes
        self._nbytes += part.nbytes
        while self._nbytes > _REMEMBERED_BYTES:
            self._nbytes -= self._bands.popitem(last=False)[1][1]
        return band
