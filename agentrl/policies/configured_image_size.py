"""Resize images as configured."""

from collections.abc import Callable
from functools import lru_cache

from agentrl.actions.dialect import Dialect, Resize
from agentrl.config import ModelConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.models.model_adapter import resize_image, target_size
from agentrl.types import Image


def open_scaler(model: ModelConfig) -> Callable[[Image], Image]:
    """Return a function that resizes images as configured, for policies without a local model."""

    def scale(image: Image) -> Image:
        return resize_image(image, scaled_size(model, (image.shape[1], image.shape[0])))

    return scale


def scaled_size(model: ModelConfig, size: tuple[int, int]) -> tuple[int, int]:
    """Return the size to which `open_scaler` resizes an image of the given width and height."""
    target = (model.image_size[0], model.image_size[1]) if model.image_size else None
    return target_size(size, target, model.max_pixels, 1)


def resize_for(dialect: Dialect, model: ModelConfig, encoder: ChatEncoder | None) -> Resize:
    """Return a function that computes the size to which a dialect's model resizes screens."""
    if encoder is not None:
        return lru_cache(maxsize=32)(encoder.seen_size)
    return lambda size: dialect.served_size(scaled_size(model, size))
