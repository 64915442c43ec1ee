"""Adapter for Gemma 3 with vision: fixed-size images with bidirectional attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from agentrl.policies.models.model_adapter import resize_image
from agentrl.policies.models.processor_adapter import ProcessorAdapter
from agentrl.types import Image

if TYPE_CHECKING:
    from torch import Tensor


class Gemma3(ProcessorAdapter):
    """Adapter for a Gemma 3 model."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3",)
    vision_modules: ClassVar[tuple[str, ...]] = ("vision_tower", "multi_modal_projector")
    attends_within_images = True
    patches_per_token = 16
    normalizes_last = True

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image to the model's fixed input size."""
        size = self._processor.image_processor.size
        return resize_image(image, (size["width"], size["height"]))

    def engine_prompt(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """Return the ids with one start token per image, without the line breaks engines add."""
        collapsed = self.collapse_image_tokens(token_ids, images)
        if not images:
            return collapsed
        start, end = self.image_markup(images[0])[0], self.image_markup(images[0])[-1]
        added = {name: id for name, id in self._added.items() if name and not name.strip("\n")}
        lengths = {id: len(name) for name, id in added.items()}
        found: list[int] = []
        owed = 0
        for id, following in zip(collapsed, [*collapsed[1:], None], strict=True):
            if id == self.image_token_id:
                continue
            if id == end:
                owed = 2
                continue
            if id in lengths and (owed or following == start):
                left = lengths[id] - owed - (2 if following == start else 0)
                found += [added["\n" * left]] if left else []
            else:
                found.append(id)
            owed = 0
        return found

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Add token_type_ids int64[B, L], which is 1 on image tokens."""
        inputs = super().forward_inputs(token_ids, attention_mask, images)
        if images:
            inputs["token_type_ids"] = (token_ids == self.image_token_id).long()
        return inputs
