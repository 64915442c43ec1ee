"""The interface to model families, and what their adapters share.

That is resizing images to the resolution of a model's input, and reading the files of its folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.errors import ConfigError
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
            images: images of all rows, in the order of their tokens.
        """


def target_size(
    size: tuple[int, int], image_size: tuple[int, int] | None, max_pixels: int, side: int
) -> tuple[int, int]:
    """The width and height that an image is resized to.

    Args:
        size: the image's own width and height.
        image_size: requested width and height; None keeps the aspect ratio.
        max_pixels: limits the area where no size is requested.
        side: side of a token in pixels; both results are multiples of it, at least one token.

    Returns:
        width and height.
    """
    width, height = image_size or size
    shrink = 1.0 if image_size else min(1.0, math.sqrt(max_pixels / (width * height)))
    columns, rows = (max(1, round(edge * shrink / side)) for edge in (width, height))
    while not image_size and columns * rows * side * side > max_pixels and columns * rows > 1:
        if columns >= rows:
            columns -= 1
        else:
            rows -= 1
    return columns * side, rows * side


def resize_image(image: Image, size: tuple[int, int]) -> Image:
    """Resize an image by area averaging; always a new array, as environments reuse their buffers.

    OpenCV is fast at halving, so a large image is halved first: that takes a third of the time for
    a screen of 720x1280.
    """
    width, height = size
    while image.shape[1] >= 4 * width and image.shape[0] >= 4 * height:
        half = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(cv2.resize(image, half, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    if (image.shape[1], image.shape[0]) == size:
        return image.copy()
    smaller = width * height < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=interpolation), dtype=np.uint8)


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
