"""Cut images into the rows of patches that Qwen's vision towers read.

Equals transformers' `Qwen2VLImageProcessor` without its resizing: images come already scaled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from agentrl.types import Image


@dataclass(slots=True, kw_only=True, frozen=True)
class PatchLayout:
    """How a vision tower divides images into patches."""

    patch: int
    """Side of a patch in pixels."""
    merge: int
    """Side of a token in patches."""
    temporal: int
    """Frames per patch; a still image is repeated."""
    mean: tuple[float, float, float]
    """Mean of the red, green and blue values in [0, 1] in the model's training data."""
    std: tuple[float, float, float]

    @property
    def side(self) -> int:
        """Side of a token in pixels; an image's width and height are multiples of it."""
        return self.patch * self.merge

    def grid(self, image: Image) -> tuple[int, int, int]:
        """Number of patches of an image in time, height and width.

        Raises:
            ValueError: its size is not a multiple of a token's.
        """
        height, width = image.shape[:2]
        if height % self.side or width % self.side:
            raise ValueError(f"image of {width}x{height}: must be a multiple of {self.side}")
        return 1, height // self.patch, width // self.patch

    def cut(self, images: Sequence[Image]) -> Tensor:
        """float32[sum of patches, 3 * temporal * patch * patch], image after image.

        Raises:
            ValueError: a size is not a multiple of a token's.
        """
        return torch.cat(
            [self._cut_same(np.stack(list(same))) for _, same in groupby(images, key=np.shape)]
        )

    def _cut_same(self, images: np.ndarray) -> Tensor:
        """The patches of images of one size, uint8[N, H, W, 3]."""
        _, rows, columns = self.grid(images[0])
        side, merge = self.patch, self.merge
        split = images.reshape(
            -1, rows // merge, merge, side, columns // merge, merge, side, 3
        ).transpose(0, 1, 4, 2, 5, 7, 3, 6)
        pixels = torch.from_numpy(np.ascontiguousarray(split)).view(-1, 3, 1, side * side).float()
        mean = torch.tensor(self.mean).mul(255).view(3, 1, 1)
        std = torch.tensor(self.std).mul(255).view(3, 1, 1)
        pixels = pixels.sub_(mean).div_(std)
        return pixels.expand(-1, -1, self.temporal, -1).reshape(len(pixels), -1)
