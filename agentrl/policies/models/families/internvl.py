"""Adapter for InternVL 3 in transformers' format, which splits an image into equal tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from agentrl.policies.models.processor_adapter import ProcessorAdapter
from agentrl.types import Image


class InternVL(ProcessorAdapter):
    """Adapter for an InternVL 3 model."""

    model_types: ClassVar[tuple[str, ...]] = ("internvl",)
    vision_modules: ClassVar[tuple[str, ...]] = ("vision_tower", "multi_modal_projector")
    patches_per_token = 4
    normalizes_last = True

    def processor_arguments(self) -> dict[str, Any]:
        """Turn on tiling, the processor's default but not its image processor's."""
        return {"crop_to_patches": True}

    def engine_prompt(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """Return the ids with one image token per image, without the tokens that engines add."""
        collapsed = self.collapse_image_tokens(token_ids, images)
        around = {markup[0] for markup in map(self.image_markup, images)}
        around |= {markup[-1] for markup in map(self.image_markup, images)}
        return [id for id in collapsed if id not in around]
