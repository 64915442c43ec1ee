"""The interface to model families, and loading of models and their files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentrl.errors import ConfigError
from agentrl.types import Image

if TYPE_CHECKING:
    from torch import Tensor, nn


class ModelAdapter(Protocol):
    """How a model family turns images into tokens and tensors."""

    @property
    def image_token_id(self) -> int | None:
        """Placeholder token of an image or a part of it; None for a text-only model."""

    @property
    def banned_token_ids(self) -> tuple[int, ...]:
        """Image placeholders: a policy can never sample them, and no text can contain them."""

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """The tokens of one scaled image, with its start and end tokens."""

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image for the model.

        Args:
            image: uint8[H, W, 3].
            image_size: target width and height; None keeps the aspect ratio.
            max_pixels: limits the area where no size is given.
        """

    def num_image_tokens(self, image: Image) -> int:
        """Number of image tokens of one scaled image.

        Raises:
            ValueError: its size is not one that `scale` returns.
        """

    def collapse_image_tokens(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids with one image token per image, as vLLM expects them.

        Raises:
            ValueError: the runs of image tokens do not match the images.
        """

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[..., L], the position ids of one sequence."""

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Keyword arguments of the model's forward that hold the images; {} without images."""

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Keyword arguments of the model's forward.

        Args:
            token_ids: int64[B, L].
            attention_mask: bool[B, L].
            images: of all rows, in the order of their tokens.
        """


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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model's folder.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"model.path={path.parent}: no {path.name} in this folder") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must contain an object, not {type(content).__name__}")
    return content


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


def _attention(attention: str, dtype: str) -> str:
    if attention != "auto":
        return attention
    import torch
    from transformers.utils import is_flash_attn_2_available

    fast = torch.cuda.is_available() and dtype != "float32" and is_flash_attn_2_available()
    return "flash_attention_2" if fast else "sdpa"


def token_ids_of(path: Path, names: Sequence[str]) -> Mapping[str, int]:
    """The ids of those added tokens that a tokenizer has."""
    added = read_json(path / "tokenizer.json").get("added_tokens", [])
    return {token["content"]: int(token["id"]) for token in added if token["content"] in names}
