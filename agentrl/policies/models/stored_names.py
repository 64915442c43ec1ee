"""The names of a model's weights in its files, which differ from those in memory for some families.

transformers renames weights while it loads them, and joins those of experts. Files of the Hugging
Face Hub keep the first form, which engines expect as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.policies.models.model_loading import load_names

if TYPE_CHECKING:
    from torch import Tensor

_EXPERTS = ".experts."
"""In the names of weights that transformers may transpose, without a trace in their shapes."""


def as_stored(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names, and in the form, that they have in a model's files.

    Args:
        folder: the model's folder.
        tensors: by their names in memory.

    Raises:
        ConfigError: the folder has no such model.
    """
    known = _stored_shapes(folder)
    if all(
        known.get(name) == tuple(tensor.shape) and _EXPERTS not in name
        for name, tensor in tensors.items()
    ):
        return dict(tensors)  # without loading anything
    model = _names(folder)
    if not model._weight_conversions:
        return dict(tensors)
    from transformers.core_model_loading import revert_weight_conversion

    found: dict[str, Tensor] = revert_weight_conversion(model, dict(tensors))
    return {name: _laid_out_as(known.get(name), tensor) for name, tensor in found.items()}


def exported(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that the files of a trained model hold: its weights `as_stored`, and fixed buffers.

    Args:
        folder: the folder of the model that the run started from.
        tensors: the weights by their names in memory.

    Raises:
        ConfigError: the folder has no such model.
    """
    from safetensors import safe_open

    found = as_stored(folder, tensors)
    dtype = next(iter(found.values())).dtype
    left = _stored_shapes(folder).keys() - found.keys()
    if left:  # such as the mean of an audio encoder's input; or a tied head
        left &= {name for name, _ in _names(folder).named_buffers()}
    for path in sorted(folder.glob("*.safetensors")) if left else ():
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name).to(dtype) for name in left & {*file.keys()}}
    return found


def _laid_out_as(shape: tuple[int, ...] | None, tensor: Tensor) -> Tensor:
    """A tensor, transposed if that gives it the shape that it has in the files.

    transformers transposes the experts of Qwen3-VL where it reads them, but not where it saves.
    """
    is_transposed = tensor.dim() == 3 and shape != tensor.shape and shape == tensor.mT.shape
    return tensor.mT.contiguous() if is_transposed else tensor


@lru_cache(maxsize=4)
def _stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import safe_open

    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                found[name] = tuple(file.get_slice(name).get_shape())
    return found


@lru_cache(maxsize=4)
def _names(folder: Path) -> Any:
    return load_names(folder)
