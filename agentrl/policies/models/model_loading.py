"""Choose the adapter of a model, and load the model with its weights or on the meta device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.policies.models.model_adapter import ModelAdapter, read_json

if TYPE_CHECKING:
    from torch import nn


def adapter_for(path: Path) -> ModelAdapter:
    """The adapter of the model in a folder, chosen by its config.json.

    Raises:
        ConfigError: the folder has no model, or a vision model of an unsupported family.
    """
    from agentrl.policies.models.qwen_vl import QwenVL
    from agentrl.policies.models.text_only import TextOnly

    return QwenVL.read(path) if check_family(path) in QwenVL.FAMILIES else TextOnly()


def check_family(path: Path) -> str:
    """The family of the model in a folder, which needs only a config.json.

    Raises:
        ConfigError: as `adapter_for`.
    """
    from agentrl.policies.models.qwen_vl import QwenVL

    config = read_json(path / "config.json")
    family = str(config.get("model_type"))
    if "vision_config" in config and family not in QwenVL.FAMILIES:
        raise ConfigError(
            f"model.path={path}: vision models of type {family!r} are not supported; "
            f"supported are {', '.join(QwenVL.FAMILIES)} and text-only models"
        )
    return family


def load_model(
    path: Path, *, dtype: str = "float32", attention: str = "auto", device: str = "cpu"
) -> nn.Module:
    """Load a model for training, or for inference with transformers.

    Args:
        path: a folder in the Hugging Face format.
        dtype: `float32` or `bfloat16`.
        attention: `auto` uses flash-attn if it is installed and there is a GPU, else SDPA.
        device: device of the weights.

    Raises:
        ConfigError: it cannot be loaded.
    """
    check_weights(path)
    loader = _loader(path)
    import torch

    from agentrl.policies.models.qwen_vl import patch_vision_attention

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
    from agentrl.policies import torch_companions

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


def check_weights(path: Path) -> None:
    """Check by their headers that the safetensors files of a model's folder are complete.

    Raises:
        ConfigError: one is not.
    """
    from safetensors import SafetensorError, safe_open

    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file}: cannot be read as weights: {error}. Download or export the model again."
            ) from error
