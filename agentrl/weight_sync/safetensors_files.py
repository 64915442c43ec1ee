"""Read safetensors files, and write them atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.files import atomic_replace
from agentrl.policies.engines.weight_checks import (
    DIGEST,
    join_digests,
    raw_bytes,
    tensor_digest,
)
from agentrl.policies.models.stored_weights import DTYPES

if TYPE_CHECKING:
    from torch import Tensor


def write(path: Path, tensors: Mapping[str, Tensor], *, checked: bool = False) -> None:
    """Write a safetensors file atomically; see `write_stream`."""
    write_stream(path, tensors, tensors.items(), checked=checked)


def write_stream(
    path: Path,
    layout: Mapping[str, Tensor],
    tensors: Iterable[tuple[str, Tensor]],
    *,
    checked: bool = False,
) -> None:
    """Write a safetensors file atomically, holding one tensor at a time.

    Args:
        path: path of the file; its folder is created if needed.
        layout: for each tensor to write, in order, its name and a tensor of the same shape and
            dtype, which may be on the meta device.
        tensors: the tensors with their names.
        checked: whether to add a checksum, which engines verify.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The checksum is known only at the end, but its length, and thus the header's, is known now.
    about = {"format": "pt"} | ({DIGEST: join_digests({})} if checked else {})
    digests: dict[str, str] = {}
    with atomic_replace(path) as partial:
        try:
            with partial.open("wb") as file:
                file.write(_header(layout, about))
                for name, (expected, tensor) in zip(layout, tensors, strict=True):
                    plain = tensor.detach().cpu().contiguous()
                    like = layout[name]
                    assert (name, like.shape, like.dtype) == (expected, plain.shape, plain.dtype)
                    if checked:
                        digests[name] = tensor_digest(plain)
                    file.write(raw_bytes(plain))
                if checked:
                    file.seek(0)
                    file.write(_header(layout, about | {DIGEST: join_digests(digests)}))
        except OSError as error:
            raise OSError(f"{path}: cannot be written: {error}") from error


def _header(layout: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return the start of a safetensors file: the length of a JSON object, and the object."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    entries: dict[str, Any] = {"__metadata__": about}
    end = 0
    for name, like in layout.items():
        start, end = end, end + like.numel() * like.element_size()
        dtype = names[str(like.dtype).removeprefix("torch.")]
        entries[name] = {"dtype": dtype, "shape": [*like.shape], "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned in memory
    return len(text).to_bytes(8, "little") + text


def read(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, or of all safetensors files in a folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    try:
        tensors = {n: tensor for file in files for n, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be read as weights: {error}") from error
    if not tensors:
        raise ConfigError(f"{path} contains no weights (*.safetensors)")
    return tensors
