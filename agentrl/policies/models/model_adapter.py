"""The interface to model families, and functions that their adapters share.

The shared functions resize images to a model's input resolution and read the model's files.
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
"""Arguments for every `from_pretrained`; without them, transformers asks whether to run code from
the model's folder."""

if TYPE_CHECKING:
    from torch import Tensor, nn


class ModelAdapter:
    """Everything that differs between model families.

    The base class handles models without vision; families with vision override the methods for
    images. An adapter belongs to one model, which `read` opens from its folder.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    """Values of `model_type` in config.json for which `model.adapter: auto` selects this class."""
    vision_modules: ClassVar[tuple[str, ...]] = ()
    """Names of the submodules and parameters that belong to the vision tower or its projector."""
    image_token_id: int | None = None
    """Token that represents an image or part of an image; None for text-only models."""
    image_text: str = ""
    """Text that the model's chat template emits for an image."""
    image_margins: tuple[str, str] = ("", "")
    """Text that the model's processor adds before and after `image_markup`."""
    banned_token_ids: tuple[int, ...] = ()
    """Image placeholders, which a policy never samples and which encoded text never contains."""
    position_axes: int = 1
    """Dimensions of a position: 3 for M-RoPE (time, height, width)."""
    attends_within_images: bool = False
    """Whether the tokens of an image attend to each other in both directions."""
    patches_per_token: int = 1
    """Vision tower tokens per image token of the decoder."""
    joins_images: bool = False
    """Whether the decoder takes the features of all images as one tensor, not as a sequence."""
    runs_in_vllm: bool = True
    """Whether vLLM supports the family's models."""
    notes: tuple[str, ...] = ()
    """Notes for the plan, on properties that could not be derived from the model's files."""

    @classmethod
    def read(cls, path: Path) -> ModelAdapter:
        """Open the adapter for the model in a folder.

        Raises:
            ConfigError: a file of the model is missing or does not have the expected content.
        """
        return cls()

    def image_markup(self, image: Image) -> tuple[int, ...]:
        """Return the tokens of a scaled image, including its start and end tokens."""
        raise _no_vision()

    def scale(self, image: Image, image_size: tuple[int, int] | None, max_pixels: int) -> Image:
        """Resize an image for the model.

        Args:
            image: uint8[H, W, 3].
            image_size: target width and height; None keeps the aspect ratio.
            max_pixels: limits the area if no size is given.
        """
        raise _no_vision()

    def num_image_tokens(self, image: Image) -> int:
        """Return the number of image tokens of a scaled image.

        Raises:
            ValueError: `scale` never returns an image of this size.
        """
        raise _no_vision()

    def collapse_image_tokens(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """Return the ids with one image token per image.

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
        # An image cut off by a truncated prompt, or a size the engine scaled otherwise, shows here.
        expected = [self.num_image_tokens(image) for image in images]
        if runs != expected:
            raise ValueError(
                f"the prompt has image tokens in runs of {runs}, but its images need {expected}"
            )
        return collapsed

    def engine_prompt(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """Return ids that vLLM and SGLang, given the images, expand to the prompt's ids."""
        return self.collapse_image_tokens(token_ids, images)

    def positions(self, token_ids: Sequence[int], images: Sequence[Image]) -> NDArray[np.int64]:
        """Return the position ids of one sequence, int64[..., L]."""
        return np.arange(len(token_ids))

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return the images as keyword arguments of `get_image_features`; {} without images."""
        if images:
            raise _no_vision()
        return {}

    def compact_pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return compact tensors that `expand_pixels` converts to `pixels` on any device.

        A family whose processor ends with a linear function of 8-bit values returns these values,
        which saves computation here and bandwidth.
        """
        return self.pixels(images)

    def expand_pixels(self, pixels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert compact tensors to `pixels` of the same images, on the same device.

        Args:
            pixels: result of `compact_pixels`, or of `select_images` applied to it.
        """
        return dict(pixels)

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Return the keyword arguments for some of the images, in the given order.

        Args:
            pixels: result of `pixels` or `compact_pixels`.
            numbers: indices of the images.
        """
        raise _no_vision()

    def encode_images(self, model: Any, pixels: Mapping[str, Tensor]) -> Any:
        """Run the vision tower on images.

        Args:
            model: the Hugging Face model without its output head.
            pixels: result of `pixels`.

        Returns:
            The output in transformers' format; `pooler_output` has one entry [tokens, hidden] per
            image.
        """
        return model.get_image_features(**pixels, return_dict=True)

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Return keyword arguments for the whole model's forward pass.

        Args:
            token_ids: int64[B, L].
            attention_mask: bool[B, L].
            images: images of all rows, in the order of their tokens.
        """
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask.long()}
        return inputs | self.pixels(images)

    def processor_arguments(self) -> dict[str, Any]:
        """Return arguments that make the model's own processor accept images from `scale`."""
        return {}

    def engine_arguments(self) -> dict[str, Any]:
        """Return vLLM arguments for this model; `rollout.engine_kwargs` can override them."""
        if self.image_token_id is None:
            return {}
        return {
            "mm_processor_kwargs": self.processor_arguments(),
            "limit_mm_per_prompt": {"video": 0},
        }

    def prepare(self, model: nn.Module) -> None:
        """Change a loaded Hugging Face model in place, for speed, without changing its results."""

    def is_vision(self, name: str) -> bool:
        """Return whether a dotted name refers to a module or parameter of the vision tower."""
        return any(part in self.vision_modules for part in name.split("."))

    def blocks(self, model: nn.Module) -> Iterator[nn.Module]:
        """Yield the decoder's blocks (its longest list of modules), which FSDP gathers singly."""
        from torch import nn

        stacks = [
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and not self.is_vision(name)
        ]
        yield from max(stacks, key=len, default=nn.ModuleList())

    def tensor_plan(self, model: Any) -> dict[str, str]:
        """Return transformers' tensor parallelism style for each kind of module, by name."""
        return dict(model.tp_plan)

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Compute logits, float32[..., V], from the model's last hidden states.

        This applies the output head and any cap or factor in the model's configuration.
        """
        # Models apply these after the head, in the class that the learner bypasses.
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
    """Return the width and height that an image is resized to.

    Args:
        size: the image's own width and height.
        image_size: requested width and height; None keeps the aspect ratio.
        max_pixels: limits the area if no size is requested.
        side: side of a token in pixels; width and height become positive multiples of it.

    Returns:
        Width and height.
    """
    width, height = image_size or size
    shrink = 1.0 if image_size else min(1.0, math.sqrt(max_pixels / (width * height)))
    columns, rows = (max(1, round(edge * shrink / side)) for edge in (width, height))
    # Rounding up both sides may exceed the limit by a row or column of tokens.
    while not image_size and columns * rows * side * side > max_pixels and columns * rows > 1:
        if columns >= rows:
            columns -= 1
        else:
            rows -= 1
    return columns * side, rows * side


def resize_image(image: Image, size: tuple[int, int]) -> Image:
    """Resize an image by area averaging into a new array, since environments reuse their buffers.

    OpenCV is fast at halving, so large images are halved first, which takes a third of the time for
    a 720x1280 screen.
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
        ConfigError: the file is missing or cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"model.path={path.parent}: the folder has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must contain a JSON object, not {type(content).__name__}")
    return content


def image_settings(path: Path) -> dict[str, Any]:
    """Read the image processor's settings from a model's folder.

    Raises:
        ConfigError: the folder has no image processor settings.
    """
    # Since version 5, transformers saves all parts of a processor in one file.
    shared = path / "processor_config.json"
    if not (path / "preprocessor_config.json").is_file() and shared.is_file():
        found: dict[str, Any] = read_json(shared).get("image_processor") or {}
        if found:
            return found
    return read_json(path / "preprocessor_config.json")


def added_tokens(path: Path) -> dict[str, int]:
    """Read the added tokens of a model's tokenizer, which it matches before all others."""
    added = read_json(path / "tokenizer.json").get("added_tokens", [])
    return {str(token["content"]): int(token["id"]) for token in added}
