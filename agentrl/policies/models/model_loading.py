"""Load models with transformers, with weights or on the meta device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.policies.models.model_files import check_weights, read_json

if TYPE_CHECKING:
    from torch import nn


def load_model(
    path: Path, *, dtype: str = "float32", attention: str = "auto", device: str = "cpu"
) -> nn.Module:
    """Load a model for training, or for inference with transformers.

    Args:
        path: a folder in the Hugging Face format.
        dtype: `float32` or `bfloat16`.
        attention: `auto` uses flash-attn if it is installed and there is a GPU, else SDPA.
        device: of the weights.

    Raises:
        ConfigError: it cannot be loaded.
    """
    check_weights(path)
    loader = _loader(path)
    import torch

    from agentrl.policies.models.vision_tower import patch_vision_attention

    try:
        model: nn.Module = loader.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation=_attention(attention, dtype),
            local_files_only=True,
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(f"model.path={path}: cannot be loaded: {error}") from error
    patch_vision_attention(model)
    return model.to(device)


def load_on_meta(path: Path) -> nn.Module:
    """Build a model on the meta device: parameter names and shapes without weights.

    Args:
        path: a folder in the Hugging Face format.

    Raises:
        ConfigError: its configuration is invalid.
    """
    loader = _loader(path)
    import torch
    from transformers import AutoConfig

    try:
        with torch.device("meta"):
            model: nn.Module = loader.from_config(
                AutoConfig.from_pretrained(path, local_files_only=True)
            )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(f"model.path={path}: cannot be built: {error}") from error
    return model


def _loader(path: Path) -> Any:
    """The transformers class that loads the model of a folder."""
    from agentrl.policies.models import torch_companions

    torch_companions.patch_broken_imports()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    family = "ImageTextToText" if "vision_config" in read_json(path / "config.json") else "CausalLM"
    return getattr(transformers, f"AutoModelFor{family}")


def _attention(attention: str, dtype: str) -> str:
    if attention != "auto":
        return attention
    import torch
    from transformers.utils import is_flash_attn_2_available

    fast = torch.cuda.is_available() and dtype != "float32" and is_flash_attn_2_available()
    return "flash_attention_2" if fast else "sdpa"
