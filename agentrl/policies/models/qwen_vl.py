"""Adapter of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one token per square of patches of any image."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentrl.policies.models.image_resize import resize_image, target_size
from agentrl.policies.models.model_files import read_json, token_ids_of
from agentrl.policies.models.vision_patches import PatchLayout
from agentrl.types import Image

_PLACEHOLDERS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


@dataclass(slots=True, kw_only=True, frozen=True)
class QwenVL:
    """Adapter of one model of these families."""

    FAMILIES: ClassVar[tuple[str, ...]] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")

    image_token_id: int
    vision_start_id: int
    vision_end_id: int
    banned_token_ids: tuple[int, ...]
    patching: PatchLayout

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the adapter's settings from a model's folder.

        Raises:
            ConfigError: a file of the model is missing.
        """
        config = read_json(path / "config.json")
        processor = read_json(path / "preprocessor_config.json")
        vision = config["vision_config"]
        patching = PatchLayout(
            patch=vision.get("patch_size", 14),
            merge=vision.get("spatial_merge_size", 2),
            temporal=vision.get("temporal_patch_size", 2),
            mean=tuple(processor["image_mean"]),
            std=tuple(processor["image_std"]),
        )
        placeholders = token_ids_of(path, _PLACEHOLDERS)
        configured = [config["image_token_id"], config.get("video_token_id")]
        banned = {*placeholders.values(), *(id for id in configured if id is not None)}
        return cls(
            image_token_id=config["image_token_id"],
            vision_start_id=config["vision_start_token_id"],
            vision_end_id=placeholders["<|vision_end|>"],
            banned_token_ids=tuple(sorted(banned)),
            patching=patching,
        )

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """The start token, one image token per square of patches, the end token."""
        tokens = (self.image_token_id,) * self.num_image_tokens(image)
        return (self.vision_start_id, *tokens, self.vision_end_id)

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image to a multiple of a token's side."""
        size = (image.shape[1], image.shape[0])
        return resize_image(image, target_size(size, image_size, max_pixels, self.patching.side))

    def num_image_tokens(self, image: Image) -> int:
        """Number of squares of patches."""
        _, rows, columns = self.patching.grid(image)
        return rows * columns // self.patching.merge**2

    def collapse_image_tokens(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """Reduce each image's run of image tokens to a single one."""
        collapsed: list[int] = []
        runs: list[int] = []
        for is_image, run in groupby(token_ids, key=lambda id: id == self.image_token_id):
            if is_image:
                runs.append(sum(1 for _ in run))
                collapsed.append(self.image_token_id)
            else:
                collapsed.extend(run)
        expected = [self.num_image_tokens(image) for image in images]
        if runs != expected:
            raise ValueError(f"image tokens in runs of {runs}, but the images have {expected}")
        return collapsed

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[3, L]: time, height and width (M-RoPE, arXiv:2409.12191, section 2.1).

        Text tokens advance all three together. The tokens of an image share one time and are
        placed at their rows and columns; the following text starts after its longer side.
        """
        runs: list[NDArray[np.int64]] = []
        remaining = iter(images)
        following = 0
        for is_image, run in groupby(token_ids, key=lambda id: id == self.image_token_id):
            if is_image:
                _, rows, columns = self.patching.grid(next(remaining))
                rows, columns = rows // self.patching.merge, columns // self.patching.merge
                positions = np.stack(
                    [np.zeros((rows, columns), dtype=np.int64), *np.indices((rows, columns))]
                )
                runs.append(positions.reshape(3, -1) + following)
                following += max(rows, columns)
            else:
                count = sum(1 for _ in run)
                runs.append(np.tile(np.arange(following, following + count), (3, 1)))
                following += count
        return np.concatenate(runs, axis=1)

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """pixel_values float32[patches, values of a patch], image_grid_thw int64[images, 3]."""
        if not images:
            return {}
        return {
            "pixel_values": self.patching.cut(images),
            "image_grid_thw": torch.tensor([self.patching.grid(image) for image in images]),
        }

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Ids, mask, images, and mm_token_type_ids int32[B, L], which is 1 on image tokens."""
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask.long()}
        if images:
            inputs["mm_token_type_ids"] = (token_ids == self.image_token_id).int()
        return inputs | self.pixels(images)
