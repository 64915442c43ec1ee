"""Collation of packed token sequences into tensors; equal images are included once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agentrl.training.batching.packing import DistinctImages
from agentrl.training.batching.prefix_tree import PrefixTree, Tokens
from agentrl.types import Batch, Image, TokenSequence, TokenTargets, TrainingSample

if TYPE_CHECKING:
    from agentrl.policies.models import ModelAdapter


def build_batch(
    sequences: Sequence[TokenSequence],
    rows: Sequence[Sequence[PrefixTree]],
    model_adapter: "ModelAdapter",
    *,
    weights: Sequence[float] | None = None,
) -> Batch:
    """Lay out trees in rows and turn their images into tensors, on the CPU.

    Args:
        sequences: all sequences that the trees were built from.
        rows: B rows of trees; the longest has L tokens.
        model_adapter: adapter of the model family.
        weights: the loss weight of each sequence's tokens; None for 1.

    Returns:
        The batch. `pixels["image_tokens"]`, int64[images], counts the tokens of each image. If
        sequences share images, each is included once, and `pixels["image_index"]`, int64[images of
        all rows], maps each occurrence to its image.
    """
    layout = _Layout(rows, model_adapter)
    for row, trees in enumerate(rows):
        start = 0
        for tree in trees:
            layout.add(sequences, tree, row, start)
            start += tree.length
    order = sequence_order(rows)
    ordered = [sequences[index] for index in order]
    flat = [layout.flat_positions[index] for index in order]
    sampled = [np.array(sequence.sampled_positions) for sequence in ordered]
    weight = torch.tensor([1.0 if weights is None else weights[index] for index in order])
    assert layout.positions is not None
    # A token's logits are computed at the position before it.
    return Batch(
        token_ids=torch.from_numpy(layout.token_ids),
        positions=torch.from_numpy(layout.positions),
        subtree_ends=torch.from_numpy(layout.subtree_ends),
        has_branches=any(len(trees) > 1 or len(trees[0].tokens) > 1 for trees in rows),
        logit_positions=_concatenated(path[at - 1] for path, at in zip(flat, sampled, strict=True)),
        targets=_concatenated(
            np.array(sequence.token_ids)[at] for sequence, at in zip(ordered, sampled, strict=True)
        ),
        last_positions=torch.tensor([int(path[-1]) for path in flat]),
        turns=_turns(ordered),
        logprobs=_column(sequence.logprobs for sequence in ordered),
        weights=weight.repeat_interleave(torch.tensor([len(at) for at in sampled])),
        pixels=layout.pixels(),
    )


def pin(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch to page-locked memory, so that its upload to an accelerator does not block."""
    # A new thread's current device is the first device, which would allocate memory there.
    with torch.accelerator.device_index(device.index):
        return _converted(batch, Tensor.pin_memory)


def upload(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch to a device."""
    return _converted(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _converted(batch: Batch, convert: Callable[[Tensor], Tensor]) -> Batch:
    changed: dict[str, Any] = {
        field.name: convert(value)
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), Tensor)
    }
    changed["pixels"] = {
        name: value if name in _READ_AS_LISTS else convert(value)
        for name, value in batch.pixels.items()
    }
    return replace(batch, **changed)


_READ_AS_LISTS = ("image_tokens", "image_index")
"""Fields that stay on the CPU, because reading them from a GPU would wait for its pending work."""


def sequence_order(rows: Sequence[Sequence[PrefixTree]]) -> list[int]:
    """Return the indices of the sequences in rows, in the order of a batch's sampled tokens."""
    return [index for trees in rows for tree in trees for index, _ in tree.tokens]


class _Layout:
    """The arrays of a batch, filled tree by tree."""

    def __init__(self, rows: Sequence[Sequence[PrefixTree]], model_adapter: "ModelAdapter") -> None:
        self._model_adapter = model_adapter
        self._shape = len(rows), max(sum(tree.length for tree in trees) for trees in rows)
        self._images, self._image_index = DistinctImages(), list[int]()
        self.token_ids = np.zeros(self._shape, dtype=np.int64)
        self.subtree_ends = np.tile(np.arange(1, self._shape[1] + 1), (len(rows), 1))
        self.positions: np.ndarray | None = None
        self.flat_positions: dict[int, Tokens] = {}
        """Positions of each sequence's tokens in the flattened batch: row * L + column."""

    def add(
        self, sequences: Sequence[TokenSequence], tree: PrefixTree, row: int, start: int
    ) -> None:
        """Put a tree into a row, starting at column `start`."""
        self.subtree_ends[row, start : start + tree.length] = tree.subtree_ends() + start
        for index, shared in tree.tokens:
            sequence, path = sequences[index], tree.paths[index]
            # An earlier sequence of the tree has already filled the common prefix.
            columns = path[shared:] + start
            self.token_ids[row, columns] = sequence.token_ids[shared : len(path)]
            counted = self._model_adapter.positions(sequence.token_ids, sequence.images)
            # Model families differ in the number of position axes: M-RoPE has several.
            if self.positions is None:
                height, width = self._shape
                self.positions = np.tile(np.arange(width), (*counted.shape[:-1], height, 1))
            self.positions[..., row, columns] = counted[..., shared : len(path)]
            self._image_index += [
                self._images.index(image)
                for image in _images_after(sequence, shared, self._model_adapter.image_token_id)
            ]
            self.flat_positions[index] = row * self._shape[1] + start + path

    def pixels(self) -> dict[str, Tensor]:
        """Return the images of all rows; see `ModelAdapter.compact_pixels`."""
        images = self._images.images
        pixels = dict(self._model_adapter.compact_pixels(images))
        if images:
            sizes = [self._model_adapter.num_image_tokens(image) for image in images]
            pixels["image_tokens"] = torch.tensor(sizes)
        if len(images) < len(self._image_index):
            pixels["image_index"] = torch.tensor(self._image_index)
        return pixels


def _images_after(
    sequence: TokenSequence, shared: int, image_token_id: int | None
) -> Iterable[Image]:
    """Return the images of a sequence that do not start within its first `shared` tokens."""
    if not sequence.images:
        return ()
    # An image is a run of tokens. If its first token is shared, it is already in the batch.
    before = np.array(sequence.token_ids[:shared]) == image_token_id
    starts = before & ~np.concatenate([[False], before[:-1]]) if shared else before
    return sequence.images[int(starts.sum()) :]


def token_targets(
    samples: Sequence[TrainingSample], device: torch.device | str = "cpu"
) -> TokenTargets:
    """Build the loss's tensors, for samples in the order of their batch; see `sequence_order`."""

    def column(values: Callable[[TrainingSample], Sequence[float] | None]) -> Tensor | None:
        columns = [own for sample in samples if (own := values(sample)) is not None]
        return _column(columns).to(device) if len(columns) == len(samples) else None

    return TokenTargets(
        advantages=_column(sample.advantages for sample in samples).to(device),
        old_logprobs=_column(sample.old_logprobs for sample in samples).to(device),
        reference_logprobs=column(lambda sample: sample.reference_logprobs),
        values=column(lambda sample: sample.values),
        returns=column(lambda sample: sample.returns),
    )


def _column(values: Iterable[Sequence[float]]) -> Tensor:
    return torch.tensor([value for own in values for value in own], dtype=torch.float32)


def _turns(sequences: Sequence[TokenSequence]) -> Tensor:
    """Return int64[N] turn numbers, equal for tokens in the same turn of the same sequence."""
    numbers: dict[tuple[int, int], int] = {}
    return torch.tensor(
        [
            numbers.setdefault((index, turn), len(numbers))
            for index, sequence in enumerate(sequences)
            for turn in sequence.turns
        ]
    )


def _concatenated(arrays: Iterable[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(list(arrays)))
