"""Open the encoder that a configuration selects."""

from pathlib import Path

from agentrl.config import ModelConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder


def open_encoder(model: ModelConfig, folder: Path) -> ChatEncoder:
    """Open a model's encoder, with the configured image size."""
    return ChatEncoder(
        folder,
        model.image_size,
        model.max_pixels,
        adapter=model.adapter,
        chat=model.chat,
        chat_options=model.chat_options,
    )
