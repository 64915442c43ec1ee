"""A model family of your own: LLaVA, whose images all have the same size.

agentrl check model model_adapter.py:Llava path=FOLDER
agentrl train CONFIG model.path=FOLDER model.adapter=model_adapter.py:Llava
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from agentrl.policies.models.model_adapter import (
    ModelAdapter,
    image_settings,
    read_json,
    resize_image,
)
from agentrl.types import Image


class Llava(ModelAdapter):
    """Adapter for one model, in which every square image is a fixed number of tokens.

    Args:
        path: the model's folder.
    """

    model_types: ClassVar[tuple[str, ...]] = ("llava",)
    vision_modules: ClassVar[tuple[str, ...]] = ("vision_tower", "multi_modal_projector")
    image_text = "<image>"

    def __init__(self, path: Path) -> None:
        config, processor = read_json(path / "config.json"), image_settings(path)
        vision = config["vision_config"]
        self.image_token_id: int = config.get("image_token_id", config.get("image_token_index"))
        self.banned_token_ids = (self.image_token_id,)
        self._side: int = vision["image_size"]
        self._tokens: int = (self._side // vision["patch_size"]) ** 2
        self._mean, self._std = (np.array(processor[n]) for n in ("image_mean", "image_std"))

    @classmethod
    def read(cls, path: Path) -> Llava:
        """Read the settings from the model's folder."""
        return cls(path)

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image to the model's fixed input size."""
        return resize_image(image, (self._side, self._side))

    def num_image_tokens(self, image: Image) -> int:
        """Return the number of patches: one token per patch."""
        return self._tokens

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Return just the image tokens."""
        return (self.image_token_id,) * self._tokens

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return pixel_values float32[images, 3, side, side]."""
        if not images:
            return {}
        values = (np.stack(list(images)) / 255 - self._mean) / self._std
        return {"pixel_values": torch.from_numpy(values).permute(0, 3, 1, 2).float()}

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Select images by their numbers."""
        return {"pixel_values": pixels["pixel_values"][list(numbers)]}
