"""Checks that an engine uses the published weights, by their names, shapes and checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from agentrl.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor, nn

DIGEST = "digest"
"""Key of the optional checksum in the header of a safetensors file."""


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Compute the checksum of tensors from their names, dtypes, shapes and bytes."""
    return join_digests({name: tensor_digest(tensor) for name, tensor in tensors.items()})


def tensor_digest(tensor: Tensor) -> str:
    """Compute the checksum of one tensor from its dtype, shape and bytes."""
    plain = tensor.detach().cpu().contiguous()
    found = xxhash.xxh3_128(f"{plain.dtype} {tuple(plain.shape)}\n".encode())
    found.update(raw_bytes(plain))
    return found.hexdigest()


def raw_bytes(plain: Tensor) -> memoryview:
    """View a contiguous CPU tensor as bytes, sharing its memory."""
    import torch

    return plain.reshape(-1).view(torch.uint8).numpy().data


def join_digests(digests: Mapping[str, str]) -> str:
    """Combine the checksums of several tensors, given by tensor name, in any order."""
    lines = (f"{name} {digests[name]}\n" for name in sorted(digests))
    return xxhash.xxh3_128_hexdigest("".join(lines).encode())


def stored_digest(path: Path) -> str | None:
    """Return the checksum in the header of a safetensors file; None if the file has none."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return (file.metadata() or {}).get(DIGEST)


def check_digest(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Check weights against the checksum in the file they came from, if the file has one."""
    from safetensors import safe_open

    expected = stored_digest(path)
    if expected is None:
        return
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
    found = digest({name: tensors[name] for name in names})
    if found != expected:
        raise EngineError(
            f"weights of {path}: the engine's weights have checksum {found}, but the learner "
            f"published {expected} (train.check_weights)"
        )


def check_header(model: nn.Module, path: Path) -> None:
    """Check the names and shapes in a safetensors file's header against a model's.

    Args:
        model: the model; may be on the meta device.
        path: a file with every parameter of the model; tied names may be missing.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    check_shapes(model, shapes, str(path))


def check_shapes(model: nn.Module, shapes: Mapping[str, Sequence[int]], source: str) -> None:
    """Check the names and shapes of weights against a model's."""
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # Learners publish each parameter once, so a tied output head appears only as the embedding.
    required = {name for name, _ in model.named_parameters()}
    problems = [f"{name} is missing" for name in sorted(required - shapes.keys())]
    problems += [f"{name} is unexpected" for name in sorted(shapes.keys() - own.keys())]
    problems += [
        f"{name} has shape {list(shape)} instead of {own[name]}"
        for name, shape in shapes.items()
        if name in own and list(shape) != own[name]
    ]
    if problems:
        raise EngineError(
            f"{len(problems)} weights of {source} do not fit the model: {', '.join(problems[:3])}"
        )
