"""Adapter for models without vision; transformers handles the differences between them."""

from typing import ClassVar

from agentrl.policies.models.model_adapter import ModelAdapter


class Text(ModelAdapter):
    """Adapter for text-only models; any image is an error."""

    model_types: ClassVar[tuple[str, ...]] = (
        "gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2",
        "qwen2_moe", "qwen3", "qwen3_moe", "smollm3",
    )  # fmt: skip
