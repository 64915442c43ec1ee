"""Adapter of InternVL 3 in transformers' format: an image is one or several tiles of one size."""

from __future__ import annotations

from typing import ClassVar

from agentrl.policies.models.image_processor import ProcessorAdapter


class InternVL(ProcessorAdapter):
    """Adapter of one model of the family."""

    model_types: ClassVar[tuple[str, ...]] = ("internvl",)
    vision_modules: ClassVar[tuple[str, ...]] = ("vision_tower", "multi_modal_projector")
