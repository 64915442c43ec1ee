"""An adapter that processes images with the model's own transformers processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from agentrl.errors import ConfigError, boundary
from agentrl.policies.models.model_adapter import (
    NO_FOREIGN_CODE,
    ModelAdapter,
    added_tokens,
    read_json,
    resize_image,
    target_size,
)
from agentrl.types import Image

if TYPE_CHECKING:
    from torch import Tensor


class ProcessorAdapter(ModelAdapter):
    """Takes the tokens and tensors of each image from the model's processor."""

    vision_modules: ClassVar[tuple[str, ...]] = (
        "visual", "vision_tower", "vision_model", "vision_encoder", "multi_modal_projector",
        "connector", "image_newline",
    )  # fmt: skip

    normalizes_last: ClassVar[bool] = False
    """Whether normalizing 8-bit values is the image processor's last step, so that it can run on
    another device. False if the processor pads the result."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoProcessor

        self._added = added_tokens(path)
        self._markups: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._rows: dict[tuple[int, ...], int] = {}
        with boundary(ConfigError, f"model.path={path}: the processor cannot be used"):
            self._processor: Any = AutoProcessor.from_pretrained(path, **NO_FOREIGN_CODE)
            self.image_text: str = str(self._processor.image_token)
            text = self._expanded(np.zeros((64, 64, 3), np.uint8))
        config = read_json(path / "config.json")
        vision = config.get("vision_config") or {}
        token = vision.get("image_token_id")
        token = config.get("image_token_id", config.get("image_token_index", token))
        if not isinstance(token, int):
            raise ConfigError(f"model.path={path}: config.json has no image_token_id")
        self.image_token_id: int = token
        names = [name for name in self._added if name.strip() and name in text]
        before = min(text.find(name) for name in names) if names else 0
        after = max(text.rfind(name) + len(name) for name in names) if names else len(text)
        self.image_margins: tuple[str, str] = text[:before], text[after:]
        placeholders = (self.image_text, str(getattr(self._processor, "video_token", "")), *names)
        banned = {token, *(self._added[n] for n in placeholders if n in self._added)}
        self.banned_token_ids: tuple[int, ...] = tuple(sorted(banned))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Load the processor of a model's folder."""
        return cls(path)

    def _expanded(self, image: Image) -> str:
        """Return the text with which the processor replaces `image_text`."""
        return str(self._processor.replace_image_token(self._process([image]), 0))

    def _process(self, images: Sequence[Image], **changed: bool) -> Any:
        return self._processor.image_processor(
            list(images), return_tensors="pt", **{**self.processor_arguments(), **changed}
        )

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Return the processor's tokens for an image, which depend on the image's size."""
        if image.shape not in self._markups:
            before, after = self.image_margins
            text = self._expanded(image).removeprefix(before).removesuffix(after)
            ids = self._processor.tokenizer(text, add_special_tokens=False)["input_ids"]
            self._markups[image.shape] = tuple(ids)
        return self._markups[image.shape]

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image to a limited area; the processor then resizes it for the model."""
        size = (image.shape[1], image.shape[0])
        return resize_image(image, target_size(size, image_size, max_pixels, 1))

    def num_image_tokens(self, image: Image) -> int:
        """Count the image tokens in the processor's markup."""
        return self.image_markup(image).count(self.image_token_id)

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return the processor's tensors, and image_rows int64[images], each image's row count."""
        return self._tensors(images) if images else {}

    def compact_pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return the same tensors, with 8-bit values if the processor normalizes them last."""
        if not images or not self._can_normalize_later:
            return self.pixels(images)
        return self._tensors(images, do_rescale=False, do_normalize=False)

    def expand_pixels(self, pixels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Normalize 8-bit pixel values."""
        import torch

        found = dict(pixels)
        if found and self._can_normalize_later:
            # uint8[..., 3, H, W] to float32; mean and std include the rescaling.
            values, processor = found["pixel_values"], self._processor.image_processor
            factor = processor.rescale_factor
            mean, std = (
                torch.tensor(numbers, device=values.device).div(factor).view(-1, 1, 1)
                for numbers in (processor.image_mean, processor.image_std)
            )
            found["pixel_values"] = values.float().sub_(mean).div_(std)
        return found

    @property
    def _can_normalize_later(self) -> bool:
        processor = self._processor.image_processor
        return bool(self.normalizes_last and processor.do_rescale and processor.do_normalize)

    def _tensors(self, images: Sequence[Image], **changed: bool) -> dict[str, Tensor]:
        import torch

        # An image's number of tiles depends only on its size.
        for image in images:
            if image.shape not in self._rows:
                self._rows[image.shape] = len(self._process([image])["pixel_values"])
        rows = torch.tensor([self._rows[image.shape] for image in images])
        unused = {"batch_num_images", *getattr(self._processor, "unused_input_names", ())}
        found = self._process(images, **changed)
        return {**{n: v for n, v in found.items() if n not in unused}, "image_rows": rows}

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Select the tensors of some of the images."""
        import torch

        rows = pixels["image_rows"]
        found = {}
        for name, value in pixels.items():
            if len(value) == len(rows):
                found[name] = value[list(numbers)]
            else:
                parts = torch.split(value, rows.tolist())
                found[name] = torch.cat([parts[number] for number in numbers])
        return found

    def encode_images(self, model: Any, pixels: Mapping[str, Tensor]) -> Any:
        """Run the vision tower, merging pooler_output into one entry per image."""
        rows = pixels["image_rows"].tolist()
        given = {name: value for name, value in pixels.items() if name != "image_rows"}
        seen = model.get_image_features(**given, return_dict=True)
        self.joins_images: bool = not isinstance(seen.pooler_output, list | tuple)
        # If the model returned one entry per tile, join the tiles of each image.
        if len(seen.pooler_output) != len(rows):
            tiles = seen.pooler_output.split(rows)
            seen.pooler_output = [own.flatten(0, 1) for own in tiles]
        return seen

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Return ids, mask and the processor's tensors."""
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask.long()}
        pixels = self.pixels(images)
        pixels.pop("image_rows", None)
        return inputs | pixels
