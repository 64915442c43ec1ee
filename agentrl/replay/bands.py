"""What successive screens have in common, so that it is copied and compressed once."""

from collections import OrderedDict

import numpy as np
import xxhash

from agentrl.replay import png
from agentrl.types import Image

_ROWS = 64
_REMEMBERED_BYTES = 128 << 20
"""Of pixels that were compressed; what is kept of them is a fiftieth, on screens of apps."""

Key = tuple[int, bytes]


class Band:
    """Some rows of a picture; compressed when somebody first asks."""

    __slots__ = ("_done", "_rows", "nbytes")

    def __init__(self, image: Image) -> None:
        self._rows: np.ndarray | None = png.rows_of(image)
        self._done: png.Band | None = None
        self.nbytes = image.nbytes
        """Of its pixels."""

    @property
    def waits(self) -> bool:
        """Whether the pixels are still held."""
        return self._rows is not None

    def compressed(self) -> png.Band:
        """As it stands in a PNG; for one thread alone."""
        if self._done is None:
            assert self._rows is not None
            self._done, self._rows = png.compress(self._rows), None
        return self._done


class Bands:
    """The bands that were seen last. For one thread at a time."""

    def __init__(self) -> None:
        self._bands: OrderedDict[Key, Band] = OrderedDict()
        self._nbytes = 0

    def cut(self, image: Image, keys: list[Key], room: int) -> tuple[list[Band], int] | None:
        """The bands of a picture.

        Args:
            image: uint8[H, W, 3]; what is new of it is copied.
            keys: what `keys_of` says of it.
            room: bytes that may be copied.

        Returns:
            From top to bottom, and the bytes that were copied; None where there is no room.
        """
        new = {key: image[n * _ROWS : (n + 1) * _ROWS] for n, key in enumerate(keys)}
        for key in self._bands.keys() & new.keys():
            self._bands.move_to_end(key)
            del new[key]
        copied = sum(part.nbytes for part in new.values())
        if copied > room:
            return None
        self._bands |= {key: Band(part) for key, part in new.items()}
        self._nbytes += copied
        found = [self._bands[key] for key in keys]
        while self._nbytes > _REMEMBERED_BYTES:
            self._nbytes -= self._bands.popitem(last=False)[1].nbytes
        return found, copied


def keys_of(image: Image) -> list[Key]:
    """What tells bands apart: their width and a hash of their pixels."""
    width, parts = image.shape[1], np.ascontiguousarray(image)
    starts = range(0, len(image), _ROWS)
    return [(width, xxhash.xxh3_128_digest(parts[y : y + _ROWS].data)) for y in starts]
