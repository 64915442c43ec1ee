"""Adapter of text-only models."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from agentrl.types import Image


class TextOnly:
    """Adapter of a model without vision: any image is an error."""

    image_token_id: int | None = None
    banned_token_ids: tuple[int, ...] = ()

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Always an error."""
        raise ValueError("a text-only model received an image")

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Always an error."""
        raise ValueError("a text-only model received an image")

    def num_image_tokens(self, image: Image) -> int:
        """Always an error."""
        raise ValueError("a text-only model received an image")

    def collapse_image_tokens(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids unchanged."""
        if images:
            raise ValueError("a text-only model received an image")
        return list(token_ids)

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[L], from 0."""
        return np.arange(len(token_ids))

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """No keyword arguments."""
        self.collapse_image_tokens((), images)
        return {}

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Ids and mask."""
        self.collapse_image_tokens((), images)
        return {"input_ids": token_ids, "attention_mask": attention_mask.long()}
