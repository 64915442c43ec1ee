"""The interface to model families, and what their adapters share.

That is resizing images to the resolution of a model's input, and reading the files of its folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from agentrl.errors import ConfigError
from agentrl.types import Image

NO_FOREIGN_CODE: Any = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of each `from_pretrained`: without them, transformers asks whether to run code from the
model's folder."""

if TYPE_CHECKING:
    from torch import Tensor, nn


class ModelAdapter:
    """How agentrl handles a model family: all that differs between families is here.

    The base class is that of a model without vision; a family with vision overrides what it says
    about images. An adapter belongs to one model, whose folder `read` gets.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    """Values of `model_type` in config.json for which `model.adapter: auto` selects the class."""
    vision_modules: ClassVar[tuple[str, ...]] = ()
    """Names of the submodules and parameters that belong to the vision tower or its projector."""
    image_token_id: int | None = None
    """Token that stands for an image or a part of it; None for a text-only model."""
    image_text: str = ""
    """Text that the model's chat template writes for an image."""
    image_margins: tuple[str, str] = ("", "")
    """Text that the model's processor adds before and after `image_markup`."""
    banned_token_ids: tuple[int, ...] = ()
    """Image placeholders: a policy can never sample them, and no text can contain them."""
    position_axes: int = 1
    """Dimensions of a position: 3 for M-RoPE (time, height, width)."""
    attends_within_images: bool = False
    """Whether the tokens of an image attend to each other in both directions."""
    patches_per_token: int = 1
    """Tokens of the vision tower for each image token of the decoder."""
    joins_images: bool = False
    """Whether the decoder takes the features of all images as one tensor, not as a sequence."""
    runs_in_vllm: bool = True
    """Whether vLLM supports the family's models."""
    notes: tuple[str, ...] = ()
    """Notes on what could not be derived from the model's files, for the plan."""

    @classmethod
    def read(cls, path: Path) -> ModelAdapter:
        """The adapter of the model in a folder.

        Raises:
            ConfigError: a file of the model is missing or does not have the expected content.
        """
        return cls()

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """The tokens of one scaled image, with its start and end tokens."""
        raise _no_vision()

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image for the model.

        Args:
            image: uint8[H, W, 3].
            image_size: target width and height; None keeps the aspect ratio.
            max_pixels: limits the area where no size is given.
        """
        raise _no_vision()

    def num_image_tokens(self, image: Image) -> int:
        """Number of image tokens of one scaled image.

        Raises:
            ValueError: its size is not one that `scale` returns.
        """
        raise _no_vision()

    def collapse_image_tokens(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids with one image token per image.

        Raises:
            ValueError: the runs of image tokens do not match the images.
        """
        if images and self.image_token_id is None:
            raise _no_vision()
        collapsed: list[int] = []
        runs: list[int] = []
        for is_image, run in groupby(token_ids, key=lambda id: id == self.image_token_id):
            if is_image:
                runs.append(sum(1 for _ in run))
                collapsed.append(int(self.image_token_id or 0))
            else:
                collapsed.extend(run)
        expected = [self.num_image_tokens(image) for image in images]
        if runs != expected:
            raise ValueError(f"image tokens in runs of {runs}, but the images have {expected}")
        return collapsed

    def engine_prompt(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids that vLLM and SGLang expand to the prompt's, once they have seen the images."""
        return self.collapse_image_tokens(token_ids, images)

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[..., L], the position ids of one sequence."""
        return np.arange(len(token_ids))

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Keyword arguments of `get_image_features` that hold the images; {} without images."""
        if images:
            raise _no_vision()
        return {}

    def compact_pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return compact tensors that `expand_pixels` converts to `pixels` on any device.

        A family whose processor ends with a linear function of 8-bit values returns
        those values: less work here, and fewer bytes.
        """
        return self.pixels(images)

    def expand_pixels(self, pixels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`pixels` of the same images, on the same device.

        Args:
            pixels: from `compact_pixels`, or some of its images.
        """
        return dict(pixels)

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Return the keyword arguments for some of the images, in the given order.

        Args:
            pixels: from `pixels` or `compact_pixels`.
            numbers: of the images.
        """
        raise _no_vision()

    def encode_images(self, model: Any, pixels: Mapping[str, Tensor]) -> Any:
        """The output of the vision tower for images.

        Args:
            model: the Hugging Face model without its output head.
            pixels: as `pixels` returns them.

        Returns:
            transformers' output; its `pooler_output` has one entry [tokens, hidden] per image.
        """
        return model.get_image_features(**pixels, return_dict=True)

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Keyword arguments of the whole model's forward.

        Args:
            token_ids: int64[B, L].
            attention_mask: bool[B, L].
            images: images of all rows, in the order of their tokens.
        """
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask.long()}
        return inputs | self.pixels(images)

    def processor_arguments(self) -> dict[str, Any]:
        """Arguments with which the model's own processor takes images as `scale` returns them."""
        return {}

    def engine_arguments(self) -> dict[str, Any]:
        """Arguments that vLLM needs for this model, unless `rollout.engine_kwargs` has them."""
        if self.image_token_id is None:
            return {}
        return {
            "mm_processor_kwargs": self.processor_arguments(),
            "limit_mm_per_prompt": {"video": 0},
        }

    def prepare(self, model: nn.Module) -> None:
        """Change a loaded Hugging Face model in place, for speed; its results stay equal."""

    def is_vision(self, name: str) -> bool:
        """True for the dotted name of a module or parameter of the vision tower."""
        return any(part in self.vision_modules for part in name.split("."))

    def blocks(self, model: nn.Module) -> Iterator[nn.Module]:
        """The decoder's blocks, which FSDP gathers one at a time: the longest list of modules."""
        from torch import nn

        stacks = [
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and not self.is_vision(name)
        ]
        yield from max(stacks, key=len, default=nn.ModuleList())

    def tensor_plan(self, model: Any) -> dict[str, str]:
        """The style of tensor parallelism of each kind of module, by its name (transformers)."""
        return dict(model.tp_plan)

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """float32[..., V], as the whole model computes them from its last hidden states.

        Besides the output head, that is a cap or a factor that the model's configuration names.
        """
        settings = model.config.get_text_config()
        logits: Tensor = model.get_output_embeddings()(hidden).float()
        if (factor := getattr(settings, "logit_scale", None)) is not None:
            logits = logits * factor
        if (divisor := getattr(settings, "logits_scaling", None)) is not None:
            logits = logits / divisor
        if (cap := getattr(settings, "final_logit_softcapping", None)) is not None:
            logits = (logits / cap).tanh() * cap
        return logits


def _no_vision() -> ValueError:
    return ValueError("a text-only model received an image")


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
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must contain an object, not {type(content).__name__}")
    return content


def image_settings(path: Path) -> dict[str, Any]:
    """The image processor's settings of a model's folder.

    Raises:
        ConfigError: there are none.
    """
    shared = path / "processor_config.json"
    if not (path / "preprocessor_config.json").is_file() and shared.is_file():
        found: dict[str, Any] = read_json(shared).get("image_processor") or {}
        if found:
            return found
    return read_json(path / "preprocessor_config.json")


def added_tokens(path: Path) -> dict[str, int]:
    """The tokens that the tokenizer of a model's folder finds before all others, by their text."""
    added = read_json(path / "tokenizer.json").get("added_tokens", [])
    return {str(token["content"]): int(token["id"]) for token in added}
