"""Gymnasium spaces of text and of images of any size."""

from typing import Any

import gymnasium
import numpy as np

from agentrl.types import Image

# Range of the sides of sampled images, in pixels.
_SIDES = (8, 32)


class AnyText(gymnasium.spaces.Text):
    """Any Unicode text up to a maximum length; samples are letters and digits."""

    def __init__(self, max_length: int = 100_000, seed: Any = None) -> None:
        super().__init__(max_length=max_length, min_length=0, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random text."""
        count = int(self.np_random.integers(1, 20))
        letters = self.np_random.choice(list("abcdefghij0123456789 "), size=count)
        return "".join(map(str, letters))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"


class ImageTuple(gymnasium.Space[tuple[Image, ...]]):
    """A tuple of images of any size, each uint8[H, W, 3]."""

    def __init__(self, most: int = 64, seed: Any = None) -> None:
        super().__init__(None, None, seed)
        self.most = most

    @property
    def is_np_flattenable(self) -> bool:
        """Always False, because images have no fixed size."""
        return False

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a tuple of at most `most` images."""
        return (
            isinstance(x, tuple)
            and len(x) <= self.most
            and all(
                isinstance(p, np.ndarray)
                and p.dtype == np.uint8
                and p.ndim == 3
                and p.shape[2] == 3
                and min(p.shape) > 0
                for p in x
            )
        )

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[Image, ...]:
        """Return a few small images of noise."""
        count = int(self.np_random.integers(0, min(self.most, 3) + 1))
        sides = self.np_random.integers(*_SIDES, size=(count, 2))
        return tuple(self.np_random.integers(0, 256, (*s, 3)).astype(np.uint8) for s in sides)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImageTuple) and self.most == other.most

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ImageTuple({self.most})"
