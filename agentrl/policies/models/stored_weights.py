"""Read a model's weights from its files, one at a time or in part, under their names in memory.

transformers renames weights while loading them, and joins the weights of experts. Its
`from_pretrained` holds all weights in memory; this module reads only the part that a rank needs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.errors import ConfigError
from agentrl.policies.models.model_loading import check_weights, load_headers

if TYPE_CHECKING:
    from torch import Tensor, nn

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
}  # fmt: skip
"""Names of torch's dtypes, by safetensors' names."""
_INDEX = "model.safetensors.index.json"


class WeightSlice(Protocol):
    """A weight whose parts are read from its file on indexing."""

    def __getitem__(self, index: Any) -> Tensor:
        """Read part of the weight: a slice for each dimension, or `...` for the whole weight."""


def open_model(
    path: Path, *, dtype: str = "float32", attention: str = "auto", headless: bool = False
) -> tuple[nn.Module, StoredWeights]:
    """Open a model with its parameters on the meta device, and the weights to fill them with.

    Apart from that, the model is as in `load_model` before its adapter prepares it.
    """
    check_weights(path)
    model = load_headers(
        path, read_headers(path), dtype=dtype, attention=attention, headless=headless
    )
    weights = StoredWeights(model, open_files(path))
    weights.tie_equal()
    weights.fill_buffers()
    return model, weights


class StoredWeights:
    """The weights in a model's files, under their names in memory."""

    def __init__(self, model: Any, files: Mapping[str, WeightSlice]) -> None:
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            dot_natural_key,
            rename_source_key,
        )

        self._model, self._files = model, files
        conversions = model._weight_conversions or []
        renamings = [entry for entry in conversions if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in conversions if isinstance(entry, WeightConverter)]
        self._converter_of = {p: entry for entry in converters for p in entry.source_patterns}
        self._sources = defaultdict[str, list[tuple[str, str | None]]](list)
        """Maps the first name in memory to the names in the files that it comes from, each with the
        pattern that converts it; None if it is only renamed."""
        expected, prefix = model.state_dict(), model.base_model_prefix
        for stored in sorted(files, key=dot_natural_key):
            name, pattern = rename_source_key(stored, renamings, converters, prefix, expected)
            if name not in expected and stored in expected:
                name, pattern = rename_source_key(stored, [], [], prefix, expected)
            if name in expected:
                self._sources[name].append((stored, pattern))

    def __iter__(self) -> Iterator[tuple[str, WeightSlice]]:
        """Yield each weight with its name in memory, reading weights stored in parts as a whole."""
        for name, sources in self._sources.items():
            if sources[0][1] is None:
                yield name, self._files[sources[0][0]]
                continue
            converter = deepcopy(self._converter_of[sources[0][1]])
            for stored, pattern in sources:
                converter.add_tensor(name, stored, pattern, self._files[stored][...])
            found = converter.convert(name, model=self._model, config=self._model.config)
            del converter
            for target, tensor in found.items():
                yield target, tensor[0] if isinstance(tensor, list) else tensor

    def tie_equal(self) -> None:
        """Tie weights that the files contain twice if both are equal, as `from_pretrained` does."""
        tied: dict[str, str] = self._model.all_tied_weights_keys
        for target, source in list(tied.items()):
            if self._model.get_parameter(target) is self._model.get_parameter(source):
                continue
            if self._plain(target).equal(self._plain(source)):
                module, _, name = target.rpartition(".")
                setattr(self._model.get_submodule(module), name, self._model.get_parameter(source))
            else:
                del tied[target]

    def fill_buffers(self) -> None:
        """Read the buffers in the files, such as the statistics of an encoder's input."""
        for name, buffer in list(self._model.named_buffers()):
            if buffer.is_meta:
                module, _, own = name.rpartition(".")
                value = self._plain(name).to(buffer.dtype, copy=True)
                self._model.get_submodule(module)._buffers[own] = value

    def _plain(self, name: str) -> Tensor:
        return self._files[self._sources[name][0][0]][...]


def read_headers(folder: Path) -> dict[str, Tensor]:
    """Create a meta tensor for each weight in a folder's safetensors files, keyed by its name."""
    import torch

    def header(found: Any) -> Tensor:
        dtype = getattr(torch, DTYPES[found.get_dtype()])
        return torch.empty(found.get_shape(), dtype=dtype, device="meta")

    return {name: header(found) for name, found in open_files(folder).items()}


def open_files(path: Path) -> dict[str, Any]:
    """Open the weights of a safetensors file or a model's folder, keyed by their stored names.

    Returns:
        safetensors' slices, which read on indexing: `WeightSlice` with `get_shape` and `get_dtype`.

    Raises:
        ConfigError: there are no weights, or a file is broken.
    """
    from safetensors import SafetensorError, safe_open

    found: dict[str, Any] = {}
    for file in _files(path):
        try:
            opened: Any = safe_open(file, framework="pt")
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} cannot be read as weights: {error}") from error
        found |= {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
    if not found:
        raise ConfigError(f"{path} contains no safetensors file with weights")
    return found


def _files(path: Path) -> list[Path]:
    """Return the files that transformers would read; others, such as `consolidated`, are copies."""
    if not path.is_dir():
        return [path]
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    if (path / _INDEX).is_file():
        index = json.loads((path / _INDEX).read_text(encoding="utf-8"))
        return [path / name for name in sorted({*index["weight_map"].values()})]
    return sorted(path.glob("*.safetensors"))
