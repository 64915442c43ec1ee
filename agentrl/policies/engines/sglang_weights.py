"""Weights as SGLang reads them: a folder in the format of the Hugging Face hub.

Transformers renames the weights of some models when it loads them (`visual` becomes `model.visual`
in Qwen2.5-VL). SGLang knows the names on the hub, and skips others without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl.errors import EngineError
from agentrl.policies.engines.weight_checks import check_digest

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


def write_hub_folder(model: nn.Module, source: Path, weights: Path, folder: Path) -> Path:
    """Write a model's folder with other weights under the names that SGLang expects.

    Args:
        model: may be on the meta device.
        source: the model's folder, whose other files are linked.
        weights: a safetensors file, or a folder of them.
        folder: exists, and is empty.

    Returns:
        `folder`; or `weights`, if that is a folder that SGLang can read as it is.

    Raises:
        EngineError: a file differs from the checksum in its header.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    files = sorted(weights.glob("*.safetensors")) if weights.is_dir() else [weights]
    names: dict[Path, list[str]] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            names[file] = list(opened.keys())
    known = hub_names(model, [name for found in names.values() for name in found])
    is_renamed = any(name != new for name, new in known.items())
    if weights.is_dir() and not is_renamed:
        return weights
    for other in source.iterdir():
        if other.is_file() and not other.name.endswith(_WEIGHTS):
            (folder / other.name).symlink_to(other.absolute())
    for number, file in enumerate(files, 1):
        part = "" if len(files) == 1 else f"-{number:05d}-of-{len(files):05d}"
        target = folder / f"model{part}.safetensors"
        tensors = load_file(file)
        check_digest(file, tensors)
        if is_renamed:
            renamed = {known[name]: tensor for name, tensor in tensors.items()}
            save_file(renamed, target, metadata={"format": "pt"})
        else:
            target.symlink_to(file.absolute())
    return folder


def hub_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """The names of weights on the hub, by their names in transformers.

    Raises:
        EngineError: the format of this model's weights on the hub differs in more than names.
    """
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    found = {}
    for name in names:
        one = torch.empty(1, 1, device="meta")
        reverted = revert_weight_conversion(model, {name: one})
        if len(reverted) != 1:
            raise EngineError(
                f"{name}: SGLang reads the weights of {type(model).__name__} in another layout "
                "than transformers; use rollout.engine=vllm"
            )
        (found[name],) = reverted
    return found
