"""Adapter for Qwen2-VL, Qwen2.5-VL and Qwen3-VL, with one token per square of patches."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from agentrl.policies.models.model_adapter import (
    ModelAdapter,
    added_tokens,
    image_settings,
    read_json,
    resize_image,
    target_size,
)
from agentrl.types import Image

_PLACEHOLDERS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


@dataclass(slots=True, kw_only=True, frozen=True)
class PatchLayout:
    """How a vision tower divides images into patches.

    Equivalent to transformers' `Qwen2VLImageProcessor` without resizing, because images are already
    scaled.
    """

    patch: int
    """Side of a patch in pixels."""
    merge: int
    """Side of a token in patches."""
    temporal: int
    """Frames per patch; still images are repeated."""
    mean: tuple[float, float, float]
    """Mean of red, green and blue values, in [0, 1], in the model's training data."""
    std: tuple[float, float, float]

    @property
    def side(self) -> int:
        """Side of a token in pixels; an image's width and height are multiples of it."""
        return self.patch * self.merge

    def grid(self, image: Image) -> tuple[int, int, int]:
        """Return the number of patches of an image along time, height and width."""
        height, width = image.shape[:2]
        if height % self.side or width % self.side:
            raise ValueError(
                f"image sides must be multiples of {self.side} pixels, got {width}x{height}"
            )
        return 1, height // self.patch, width // self.patch

    def to_patches(self, images: Sequence[Image]) -> Tensor:
        """Split images into patches, uint8[all patches, 3 * patch * patch], image after image."""
        return torch.cat(
            [self._to_patches(np.stack(list(same))) for _, same in groupby(images, key=np.shape)]
        )

    def _to_patches(self, images: np.ndarray) -> Tensor:
        """Split images of one size, uint8[N, H, W, 3], into patches."""
        _, rows, columns = self.grid(images[0])
        side, merge = self.patch, self.merge
        split = images.reshape(
            -1, rows // merge, merge, side, columns // merge, merge, side, 3
        ).transpose(0, 1, 4, 2, 5, 7, 3, 6)
        return torch.from_numpy(np.ascontiguousarray(split)).view(-1, 3 * side * side)

    def normalize(self, patches: Tensor) -> Tensor:
        """Normalize to float32[patches, 3 * temporal * patch * patch], on the same device."""
        pixels = patches.view(len(patches), 3, 1, -1).float()
        mean, std = (
            torch.tensor(values, device=patches.device).mul(255).view(3, 1, 1)
            for values in (self.mean, self.std)
        )
        pixels = pixels.sub_(mean).div_(std)
        return pixels.expand(-1, -1, self.temporal, -1).reshape(len(pixels), -1)


class QwenVL(ModelAdapter):
    """Adapter for a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model."""

    model_types: ClassVar[tuple[str, ...]] = (
        "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe",
    )  # fmt: skip
    vision_modules: ClassVar[tuple[str, ...]] = ("visual",)
    image_text = "<|vision_start|><|image_pad|><|vision_end|>"
    position_axes = 3

    def __init__(
        self,
        *,
        image_token_id: int,
        vision_start_id: int,
        vision_end_id: int,
        banned_token_ids: tuple[int, ...],
        patching: PatchLayout,
    ) -> None:
        self.image_token_id: int = image_token_id
        self.vision_start_id, self.vision_end_id = vision_start_id, vision_end_id
        self.banned_token_ids = banned_token_ids
        self.patching = patching
        self.patches_per_token: int = patching.merge**2

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the adapter's settings from a model's folder."""
        config = read_json(path / "config.json")
        processor = image_settings(path)
        vision = config["vision_config"]
        patching = PatchLayout(
            patch=vision.get("patch_size", 14),
            merge=vision.get("spatial_merge_size", 2),
            temporal=vision.get("temporal_patch_size", 2),
            mean=tuple(processor["image_mean"]),
            std=tuple(processor["image_std"]),
        )
        ids = added_tokens(path)
        placeholders = {name: ids[name] for name in _PLACEHOLDERS if name in ids}
        configured = [config["image_token_id"], config.get("video_token_id")]
        banned = {*placeholders.values(), *(id for id in configured if id is not None)}
        return cls(
            image_token_id=config["image_token_id"],
            vision_start_id=config["vision_start_token_id"],
            vision_end_id=placeholders["<|vision_end|>"],
            banned_token_ids=tuple(sorted(banned)),
            patching=patching,
        )

    def tensor_plan(self, model: Any) -> dict[str, str]:
        """See `ModelAdapter`; Qwen3-VL, which has no plan in transformers 5.19, uses Qwen3's."""
        if plan := super().tensor_plan(model):
            return plan
        from transformers import Qwen3Config

        own: dict[str, str] = Qwen3Config.base_model_tp_plan or {}
        return {f"model.language_model.{name}": style for name, style in own.items()}

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Return the start token, one image token per square of patches, and the end token."""
        tokens = (self.image_token_id,) * self.num_image_tokens(image)
        return (self.vision_start_id, *tokens, self.vision_end_id)

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image to a multiple of a token's side."""
        size = (image.shape[1], image.shape[0])
        return resize_image(image, target_size(size, image_size, max_pixels, self.patching.side))

    def num_image_tokens(self, image: Image) -> int:
        """Return the number of squares of patches."""
        _, rows, columns = self.patching.grid(image)
        return rows * columns // self.patching.merge**2

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """Return int64[3, L]: time, height and width (M-RoPE, arXiv:2409.12191, section 2.1).

        Text tokens advance all three axes together. The tokens of an image share one time and are
        placed by row and column; the text after it starts after the image's longer side.
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
        """Return pixel_values float32[patches, patch values], image_grid_thw int64[images, 3]."""
        return self.expand_pixels(self.compact_pixels(images))

    def compact_pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return 8-bit values without repeated frames; see `PatchLayout.to_patches`."""
        if not images:
            return {}
        return {
            "pixel_values": self.patching.to_patches(images),
            "image_grid_thw": torch.tensor([self.patching.grid(image) for image in images]),
        }

    def expand_pixels(self, pixels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Normalize the values and repeat frames."""
        if not pixels:
            return {}
        return {**pixels, "pixel_values": self.patching.normalize(pixels["pixel_values"])}

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Select the patches and grids of some of the images."""
        grid = pixels["image_grid_thw"]
        rows = torch.split(pixels["pixel_values"], grid.prod(-1).tolist())
        return {
            "pixel_values": torch.cat([rows[number] for number in numbers]),
            "image_grid_thw": grid[list(numbers)],
        }

    def processor_arguments(self) -> dict[str, Any]:
        """Turn off resizing, because image tokens were counted for the images' current size."""
        return {"do_resize": False}

    def prepare(self, model: nn.Module) -> None:
        """Patch the vision tower to process all images at once."""
        patch_vision_attention(model)

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Return ids, mask, images, and mm_token_type_ids int32[B, L], 1 on image tokens."""
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask.long()}
        if images:
            inputs["mm_token_type_ids"] = (token_ids == self.image_token_id).int()
        return inputs | self.pixels(images)


def patch_vision_attention(model: nn.Module) -> None:
    """Patch a model in place to process all images at once; transformers loops over them.

    The results are equal up to rounding.
    """
    for module in model.modules():
        conv = getattr(module, "proj", None)
        if isinstance(conv, nn.Conv3d) and conv.kernel_size == conv.stride:
            module.forward = MethodType(_linear_patch_embedding, module)
        elif type(module).__name__.endswith("VisionAttention") and hasattr(module, "qkv"):
            module.forward = MethodType(_attention, module)


def _linear_patch_embedding(module: Any, patches: Tensor) -> Tensor:
    """Compute the patch embedding as a matrix product, which is faster than a convolution here."""
    conv = module.proj
    weight = conv.weight.flatten(1)
    return F.linear(patches.reshape(-1, weight.shape[1]).to(weight.dtype), weight, conv.bias)


def _attention(module: Any, hidden_states: Tensor, cu_seqlens: Tensor, **rest: Any) -> Tensor:
    """Attend in all images or windows of equal length at once; transformers loops over them."""
    if module.config._attn_implementation != "sdpa":
        original: Tensor = type(module).forward(module, hidden_states, cu_seqlens, **rest)
        return original
    size, heads = len(hidden_states), module.num_heads
    query, key, value = module.qkv(hidden_states).view(size, 3, heads, -1).unbind(1)
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb_vision
    query, key = rotate(query, key, *rest["position_embeddings"])
    lengths = cu_seqlens.diff()
    distinct = sorted({length for length in lengths.tolist() if length})
    if len(distinct) == 1:
        return _proj(module, _attend(module, query, key, value, distinct[0]))
    parts, indices = [], []
    for length in distinct:
        starts = cu_seqlens[:-1][lengths == length]
        index = (starts[:, None] + torch.arange(length, device=starts.device)).flatten()
        part = [states.index_select(0, index) for states in (query, key, value)]
        parts.append(_attend(module, part[0], part[1], part[2], length))
        indices.append(index)
    return _proj(module, torch.cat(parts).index_select(0, torch.cat(indices).argsort()))


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, length: int) -> Tensor:
    """Attend within each run of `length` rows; return [rows, heads * head size]."""

    def fold(states: Tensor) -> Tensor:
        return states.view(-1, length, *states.shape[1:]).transpose(1, 2)

    attended = F.scaled_dot_product_attention(
        fold(query), fold(key), fold(value), scale=module.scaling
    )
    return attended.transpose(1, 2).flatten(0, 1).flatten(1)


def _proj(module: Any, states: Tensor) -> Tensor:
    projected: Tensor = module.proj(states)
    return projected
