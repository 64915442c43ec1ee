"""Adapter for LLaVA-OneVision, which encodes an image as a small overview and tiles."""

from __future__ import annotations

from typing import ClassVar

from agentrl.policies.models.processor_adapter import ProcessorAdapter


class LlavaOneVision(ProcessorAdapter):
    """Adapter for a LLaVA-OneVision model.

    An image has the same number of tokens whether or not a prompt has other images, so that each
    prompt of an episode extends the previous prompt.
    """

    model_types: ClassVar[tuple[str, ...]] = ("llava_onevision",)
    vision_modules: ClassVar[tuple[str, ...]] = (
        "vision_tower", "multi_modal_projector", "image_newline",
    )  # fmt: skip
