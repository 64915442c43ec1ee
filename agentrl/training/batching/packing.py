"""Pack token sequences into rows, and rows into micro-batches under a token budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.training.batching import prefix_tree
from agentrl.training.batching.prefix_tree import PrefixTree, Tokens
from agentrl.types import Image, TokenSequence


@dataclass(slots=True, kw_only=True, frozen=True)
class Packing:
    """Settings for laying out sequences in a forward pass."""

    max_tokens: int
    """Maximum tokens of a micro-batch, including padding; a longer sequence is packed alone."""
    attention_break_even: float
    """Row length at which attention costs as much as the other layers; see
    `prefix_tree.build_trees`."""
    share_prefixes: bool = True
    """Whether common prefixes are computed once."""
    attention_masks: bool = True
    """Whether the attention supports masks. If not, a micro-batch is a single row of whole
    sequences, separated by their lengths, and no prefix is shared."""
    attention_block: int | None = None
    """Side, in tokens, of the blocks that attention skips if they are masked; a micro-batch is then
    a single row. With None, masked parts are computed too."""
    read_last_tokens: bool = True
    """Whether a sequence's last token is an input if it was sampled. A policy does not need the
    state after it; a critic predicts its value."""
    image_token_cost: float = 0.0
    """Cost of encoding one image token, relative to one token in the decoder without attention.
    Used only to balance ranks."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether a tree may have several sequences."""
        return self.share_prefixes and self.attention_masks

    @property
    def is_single_row(self) -> bool:
        """Whether a micro-batch is a single row without padding."""
        return not self.attention_masks or self.attention_block is not None


def pack_micro_batches(
    sequences: Sequence[TokenSequence], packing: Packing, image_token_id: int | None
) -> list[list[list[PrefixTree]]]:
    """Pack sequences into [micro-batches][rows][trees]; see `pack_rows` and `pack_single_rows`."""
    keys = sequence_keys(sequences, packing, image_token_id)
    if packing.shares_prefixes:
        trees = prefix_tree.build_trees(
            keys, packing.max_tokens, packing.attention_break_even, packing.attention_block
        )
    else:
        trees = [prefix_tree.single_sequence(index, len(key)) for index, key in enumerate(keys)]
    if packing.is_single_row:
        return pack_single_rows(trees, packing.max_tokens)
    return pack_rows(trees, packing.max_tokens)


def pack_rows(
    trees: Sequence[PrefixTree], max_tokens: int, fill: bool = True
) -> list[list[list[PrefixTree]]]:
    """Pack trees into rows and rows into micro-batches, the longest first.

    The longest tree determines the row length of a micro-batch; shorter trees share a row while
    they fit.

    Args:
        trees: trees to pack.
        max_tokens: size of a micro-batch, including padding; a longer tree is packed alone.
        fill: whether trees share rows; otherwise each has its own.

    Returns:
        [micro-batches][rows][trees], the largest first, so that insufficient memory shows in the
        first micro-batch. Deterministic.
    """
    # First-fit decreasing: a micro-batch's first tree is its longest and sets its width.
    batches: list[list[list[PrefixTree]]] = []
    free: list[int] = []
    width = 0
    for tree in sorted(trees, key=lambda tree: -tree.length):
        row = next((i for i, space in enumerate(free) if fill and space >= tree.length), None)
        if row is not None:
            batches[-1][row].append(tree)
            free[row] -= tree.length
        elif batches and (len(batches[-1]) + 1) * width <= max_tokens:
            batches[-1].append([tree])
            free.append(width - tree.length)
        else:
            width = tree.length
            batches.append([[tree]])
            free = [0]
    return batches


def pack_single_rows(trees: Sequence[PrefixTree], max_tokens: int) -> list[list[list[PrefixTree]]]:
    """Pack trees into micro-batches of a single row without padding, the longest first.

    Args:
        trees: trees to pack.
        max_tokens: length of a row; a longer tree is packed alone.

    Returns:
        [micro-batches][1][trees]. Deterministic.
    """
    batches: list[list[list[PrefixTree]]] = []
    free: list[int] = []
    for tree in sorted(trees, key=lambda tree: -tree.length):
        row = next((i for i, space in enumerate(free) if space >= tree.length), None)
        if row is None:
            batches.append([[tree]])
            free.append(max_tokens - tree.length)
        else:
            batches[row][0].append(tree)
            free[row] -= tree.length
    return batches


def sequence_keys(
    sequences: Sequence[TokenSequence], packing: Packing, image_token_id: int | None
) -> list[Tokens]:
    """Return the token ids of each sequence that are model inputs.

    Image tokens are replaced by a negative number that identifies their image.
    """
    images = DistinctImages()
    keys = []
    for sequence in sequences:
        key = np.array(sequence.token_ids, dtype=np.int64)
        if sequence.images:
            # Each run of image tokens is an image, in the order of `images`.
            is_image = key == image_token_id
            first = is_image & ~np.concatenate([[False], is_image[:-1]])
            names = np.array([-1 - images.index(image) for image in sequence.images])
            key = np.where(is_image, names[np.maximum(np.cumsum(first) - 1, 0)], key)
        if not packing.read_last_tokens and sequence.sampled_positions[-1:] == (len(key) - 1,):
            key = key[:-1]
        keys.append(key)
    return keys


class DistinctImages:
    """Distinct images in the order of their first occurrence."""

    def __init__(self) -> None:
        self.images: list[Image] = []
        self._indices: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._by_object: dict[int, tuple[Image, int]] = {}

    def index(self, image: Image) -> int:
        """Return the index of an equal image in `images`; add the image if it is new."""
        # Turns of a conversation share image objects. Keeping the objects keeps their ids unique.
        if (known := self._by_object.get(id(image))) is not None:
            return known[1]
        index = self._indices.setdefault((image.shape, image.tobytes()), len(self._indices))
        if index == len(self.images):
            self.images.append(image)
        self._by_object[id(image)] = image, index
        return index
