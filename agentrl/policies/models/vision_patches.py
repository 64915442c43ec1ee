"""Pictures as the rows of patches that Qwen's vision towers read.

Equals transformers' `Qwen2VLImageProcessor` without its resizing; pictures come already scaled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from agentrl.types import Image


@dataclass(slots=True, kw_only=True, frozen=True)
class Patching:
    """How a vision tower cuts pictures up."""

    patch: int
    """Pixels of a patch's side."""
    merge: int
    """Patches of a token's side."""
    temporal: int
    """Frames of a patch; a still picture is repeated."""
    mean: tuple[float, float, float]
    """Of the red, green and blue values in [0, 1] that the model was trained on."""
    std: tuple[float, float, float]

    @property
    def side(self) -> int:
        """Pixels of a token's side; a picture's width and height are multiples of it."""
        return self.patch * self.merge

    def grid(self, image: Image) -> tuple[int, int, int]:
        """Patches of a picture in time, height and width.

        Raises:
            ValueError: its size is no multiple of a token's.
        """
        height, width = image.shape[:2]
        if height % self.side or width % self.side:
            raise ValueError(f"picture of {width}x{height}: must be a multiple of {self.side}")
        return 1, height // self.patch, width // self.patch

    def cut(self, images: Sequence[Image]) -> Tensor:
        """float32[sum of patches, 3 * temporal * patch * patch], picture after picture.

        Raises:
            ValueError: a size is no multiple of a token's.
        """
        return torch.cat(
            [self._cut_same(np.stack(list(same))) for _, same in groupby(images, key=np.shape)]
        )

    def _cut_same(self, images: np.ndarray) -> Tensor:
        """The same for pictures of one size, uint8[N, H, W, 3]."""
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
