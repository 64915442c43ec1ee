"""Names of a model's weights in its files, which for some families differ from those in memory.

transformers renames weights while loading them, and joins the weights of experts. Files on the
Hugging Face Hub keep the original layout, which engines expect as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.policies.models.model_loading import load_headers
from agentrl.policies.models.stored_weights import open_files, read_headers

if TYPE_CHECKING:
    from torch import Tensor

# Part of the names of weights that transformers may transpose without changing their shape.
_EXPERTS = ".experts."


def as_stored(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights to the names and layout that they have in a model's files."""
    known = _stored_shapes(folder)
    if _are_plain(tensors, known):
        return dict(tensors)
    model = _names(folder)
    if not model._weight_conversions:
        return dict(tensors)
    return _reverted(model, dict(tensors), known)


class StoredForm:
    """The layout of a trained model's weights in its files: `as_stored`, plus fixed buffers.

    Args:
        folder: folder of the model that the run started from.
        weights: all weights by their names in memory, in one dtype; may be on the meta device.
    """

    def __init__(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        self._folder = folder
        self._known = _stored_shapes(folder)
        model = None if _are_plain(weights, self._known) else _names(folder)
        # Weights in the same group are joined or split together.
        self._group_of = _groups(model, weights)
        self._model = model if model is not None and model._weight_conversions else None
        self._sizes = defaultdict[str, int](int)
        for group in self._group_of.values():
            self._sizes[group] += 1
        self._buffers = list[str]()
        layout = dict(self.convert(weights.items()))
        self._dtype = next(iter(layout.values())).dtype
        # What is left are buffers, such as the mean of an audio encoder's input, and tied heads.
        if left := self._known.keys() - layout.keys():
            buffers = {name for name, _ in _names(folder).named_buffers()}
            self._buffers = sorted(left & buffers)
        self.layout: dict[str, Tensor] = layout | {
            name: tensor.to("meta") for name, tensor in self._fixed_buffers()
        }
        """All tensors in the files by name, in the order that `convert` yields them; on the meta
        device if the weights are."""

    def convert(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Convert weights one by one, holding only weights of incomplete groups.

        Args:
            weights: all weights, in the same order as in the constructor.
        """
        pending: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in weights:
            group = self._group_of[name]
            pending[group][name] = tensor
            if len(pending[group]) == self._sizes[group]:
                complete = pending.pop(group)
                if self._model is not None:
                    complete = _reverted(self._model, complete, self._known)
                yield from complete.items()
        yield from self._fixed_buffers()

    def _fixed_buffers(self) -> Iterator[tuple[str, Tensor]]:
        files = open_files(self._folder) if self._buffers else {}
        for name in self._buffers:
            yield name, files[name][...].to(self._dtype)


def _are_plain(tensors: Mapping[str, Tensor], known: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether weights have the same layout in the files, judging by shapes alone."""
    return all(
        known.get(name) == tuple(tensor.shape) and _EXPERTS not in name
        for name, tensor in tensors.items()
    )


def _groups(model: Any, weights: Iterable[str]) -> dict[str, str]:
    """Map each weight to the name of the group that it is converted with."""
    if model is None or not model._weight_conversions:
        return {name: name for name in weights}
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    back = [conversion.reverse_transform() for conversion in model._weight_conversions[::-1]]
    renamings = [entry for entry in back if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in back if isinstance(entry, WeightConverter)]
    return {
        name: rename_source_key(name, renamings, converters, reverse=True)[0] for name in weights
    }


def _reverted(
    model: Any, weights: dict[str, Tensor], known: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    from transformers.core_model_loading import revert_weight_conversion

    found: dict[str, Tensor] = revert_weight_conversion(model, weights)
    # transformers transposes Qwen3-VL's experts when loading but not when saving.
    for name, tensor in found.items():
        shape = known.get(name)
        if tensor.dim() == 3 and shape != tensor.shape and shape == tensor.mT.shape:
            found[name] = tensor.mT.contiguous()
    return found


@lru_cache(maxsize=4)
def _stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(header.shape) for name, header in read_headers(folder).items()}


@lru_cache(maxsize=4)
def _names(folder: Path) -> Any:
    return load_headers(folder, read_headers(folder), headless=True)
