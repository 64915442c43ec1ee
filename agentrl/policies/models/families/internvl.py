"""Adapter of InternVL 3 in transformers' format: an image is one or several tiles of one size."""

from __future__ import annotations

from typing import Any, ClassVar

from agentrl.policies.models.image_processor import ProcessorAdapter


class InternVL(ProcessorAdapter):
    """Adapter of one model of the family."""

    model_types: ClassVar[tuple[str, ...]] = ("internvl",)
    vision_modules: ClassVar[tuple[str, ...]] = ("vision_tower", "multi_modal_projector")

    def processor_arguments(self) -> dict[str, Any]:
        """Tiles are the default of the processor, but not of its image processor alone."""
        return {"crop_to_patches": True}
