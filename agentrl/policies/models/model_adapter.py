"""What differs between model families, behind one face."""

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


class Kit(Protocol):
    """How a model family's pictures become tokens and tensors."""

    @property
    def image_token_id(self) -> int | None:
        """Stands for (a piece of) a picture; None where the model sees none."""

    @property
    def banned_token_ids(self) -> tuple[int, ...]:
        """What a policy can never sample and no text can contain: placeholders of pictures."""

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """The tokens that stand for one scaled picture, with those around it."""

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """A picture as the model sees it.

        Args:
            image: uint8[H, W, 3].
            image_size: the width and height asked for; None keeps the shape.
            max_pixels: bounds the area where no size is asked for.
        """

    def num_image_tokens(self, image: Image) -> int:
        """Image tokens of one scaled picture.

        Raises:
            ValueError: its size is not one that `scale` returns.
        """

    def collapse(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids with one image token for each picture, as vLLM takes them.

        Raises:
            ValueError: the image tokens are not those of the pictures.
        """

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[..., L], where the model's attention takes each token of one sequence to stand."""

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Keyword arguments of the model's forward that hold the pictures; {} for none."""

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Keyword arguments of the model's forward.

        Args:
            token_ids: int64[B, L].
            attention_mask: bool[B, L].
            images: those of all rows, in the order of their tokens.
        """


def kit_for(path: Path) -> Kit:
    """The kit of the model in a folder, by its config.json.

    Raises:
        ConfigError: no model stands there, or it is of a family that reads pictures in a way
            that no kit knows.
    """
    from agentrl.policies.models.qwen_vl import QwenVL
    from agentrl.policies.models.text_only import TextOnly

    return QwenVL.read(path) if check_family(path) in QwenVL.FAMILIES else TextOnly()


def check_family(path: Path) -> str:
    """The family of the model in a folder; its config.json alone need stand there.

    Raises:
        ConfigError: as `kit_for`.
    """
    from agentrl.policies.models.qwen_vl import QwenVL

    config = read_json(path / "config.json")
    family = str(config.get("model_type"))
    if "vision_config" in config and family not in QwenVL.FAMILIES:
        raise ConfigError(
            f"model.path={path}: no kit for vision models of type {family!r}; "
            f"known are {', '.join(QwenVL.FAMILIES)} and text-only models"
        )
    return family


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a model's folder.

    Raises:
        ConfigError: it is not there or cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"model.path={path.parent}: it has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold an object, not {type(content).__name__}")
    return content


def load_model(
    path: Path, *, dtype: str = "float32", attention: str = "auto", device: str = "cpu"
) -> nn.Module:
    """A model for training or for transformers' inference.

    Args:
        path: a folder in the Hugging Face format.
        dtype: `float32` or `bfloat16`.
        attention: `auto` takes flash-attn where it is installed and a GPU is there, else SDPA.
        device: where its weights go.

    Raises:
        ConfigError: it cannot be loaded.
    """
    check_weights(path)
    loader = _loader(path)
    import torch

    from agentrl.policies.models.vision_tower import quicken

    try:
        model: nn.Module = loader.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation=_attention(attention, dtype),
            local_files_only=True,
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(f"model.path={path}: cannot be loaded: {error}") from error
    quicken(model)
    return model.to(device)


def skeleton(path: Path) -> nn.Module:
    """A model without its weights, on the meta device: names and shapes.

    Args:
        path: a folder in the Hugging Face format.

    Raises:
        ConfigError: its configuration is none.
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
    """The class of transformers that makes the model of a folder."""
    from agentrl.policies.models import torch_companions

    torch_companions.mend()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    family = "ImageTextToText" if "vision_config" in read_json(path / "config.json") else "CausalLM"
    return getattr(transformers, f"AutoModelFor{family}")


def check_weights(path: Path) -> None:
    """See whether the safetensors files of a model's folder are whole, by their headers.

    Raises:
        ConfigError: the first that is not.
    """
    from safetensors import SafetensorError, safe_open

    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file}: cannot be read as weights: {error}. Fetch or export the model again."
            ) from error


def _attention(attention: str, dtype: str) -> str:
    if attention != "auto":
        return attention
    import torch
    from transformers.utils import is_flash_attn_2_available

    fast = torch.cuda.is_available() and dtype != "float32" and is_flash_attn_2_available()
    return "flash_attention_2" if fast else "sdpa"


def token_ids_of(path: Path, names: Sequence[str]) -> Mapping[str, int]:
    """The ids of some added tokens of a tokenizer, where it has them."""
    added = read_json(path / "tokenizer.json").get("added_tokens", [])
    return {token["content"]: int(token["id"]) for token in added if token["content"] in names}
