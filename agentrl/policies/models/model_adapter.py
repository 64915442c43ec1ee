"""The interface to model families, and the choice of the one for a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from agentrl.errors import ConfigError
from agentrl.policies.models.model_files import read_json
from agentrl.types import Image

if TYPE_CHECKING:
    from torch import Tensor


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
