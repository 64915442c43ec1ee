"""Adapter of LLaVA-OneVision: a small image of the whole and tiles of its parts."""

from __future__ import annotations

from typing import ClassVar

from agentrl.policies.models.image_processor import ProcessorAdapter


class LlavaOneVision(ProcessorAdapter):
    """Adapter of one model of the family.

    Every image has as many tokens as alone in a prompt, also where a prompt shows several: so each
    prompt of an episode extends the previous one.
    """

    model_types: ClassVar[tuple[str, ...]] = ("llava_onevision",)
    vision_modules: ClassVar[tuple[str, ...]] = (
        "vision_tower", "multi_modal_projector", "image_newline",
    )  # fmt: skip
