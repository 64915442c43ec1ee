"""Models that read text alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from agentrl.types import Image


class TextOnly:
    """A kit without pictures."""

    image_token_id: int | None = None
    banned_token_ids: tuple[int, ...] = ()

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Always an error."""
        raise ValueError("this model reads text alone, but was shown a picture")

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Always an error."""
        raise ValueError("this model reads text alone, but was shown a picture")

    def num_image_tokens(self, image: Image) -> int:
        """Always an error."""
        raise ValueError("this model reads text alone, but was shown a picture")

    def collapse(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids as they are."""
        if images:
            raise ValueError("this model reads text alone, but was shown a picture")
        return list(token_ids)

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[L], from 0."""
        return np.arange(len(token_ids))

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Nothing."""
        self.collapse((), images)
        return {}

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Ids and mask."""
        self.collapse((), images)
        return {"input_ids": token_ids, "attention_mask": attention_mask.long()}
