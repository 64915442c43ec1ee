"""Token sequences as trees, so that common prefixes are computed once.

Episodes of a group share a prefix: instructions, first screen, and often the first replies.
Laid out depth first, a token is followed directly by its descendants, so attention needs only one
number per token: the column where its subtree ends. A token attends to earlier tokens whose
subtrees have not ended. The result is exact.

Shapes: S sequences of L tokens each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class PrefixTree:
    """Sequences with a common prefix, or a single sequence."""

    length: int
    """Number of tokens, counting shared tokens once."""
    tokens: list[tuple[int, int]]
    """(sequence, number of leading tokens shared with an earlier sequence), depth first."""
    paths: dict[int, Tokens]
    """The positions of each sequence's tokens in the tree, int64[L]."""

    def subtree_ends(self) -> Tokens:
        """Return int64[length], the position where each token's subtree ends."""
        result = np.zeros(self.length, dtype=np.int64)
        for path in self.paths.values():
            # Sequences are in depth-first order, so the last one that contains a token ends its
            # subtree.
            result[path] = path[-1] + 1
        return result


def build_trees(
    keys: Sequence[Tokens],
    max_tokens: int,
    attention_break_even: float,
    attention_block: int | None = None,
) -> list[PrefixTree]:
    """Group sequences into trees wherever that is cheaper than computing them separately.

    A tree of n tokens costs n * `attention_break_even` for the layers that are linear in tokens,
    plus `attention_pairs` for attention.

    Args:
        keys: each sequence's keys, equal where tokens and images are equal.
        max_tokens: maximum length of a tree with more than one sequence.
        attention_break_even: see above; infinite if masked parts of the attention are free.
        attention_block: see `attention_pairs`.

    Returns:
        Trees that contain each sequence once. Deterministic.
    """
    chain = prefix_chain(keys)
    lengths = [len(key) for key in keys]
    return [
        tree_of_chain(part, lengths)
        for part in split_chain(chain, lengths, max_tokens, attention_break_even, attention_block)
    ]


def attention_pairs(ends: Tokens, block: int | None) -> int:
    """Return the number of query-key pairs that attention computes for a row.

    Args:
        ends: int64[L], position where each token's subtree ends.
        block: side, in tokens, of the blocks that are skipped if masked; None computes the whole
            row.
    """
    if block is None:
        return len(ends) ** 2
    starts = np.arange(0, len(ends), block)
    # A key block is attended to by query blocks from its own to where its last subtree ends.
    last = (np.maximum.reduceat(ends, starts) - 1) // block
    return int((last - starts // block + 1).sum()) * block**2


Chain = Sequence[tuple[int, int]]
"""(sequence, number of leading tokens shared with the previous sequence), in sorted order."""


def prefix_chain(keys: Sequence[Tokens]) -> Chain:
    """Order sequences so that each shares as long a prefix as possible with its predecessor."""
    # Bytes are compared in C, which is fast. Sorting makes sequences with equal prefixes neighbors.
    order = sorted(range(len(keys)), key=lambda index: (keys[index].astype(">i8").tobytes(), index))
    shared = [_common_prefix(keys[one], keys[other]) for one, other in pairwise(order)]
    return list(zip(order, [0, *shared], strict=True)) if order else []


def split_chain(
    chain: Chain,
    lengths: Sequence[int],
    max_tokens: int,
    attention_break_even: float,
    attention_block: int | None = None,
) -> list[Chain]:
    """Split a chain into the parts that become trees; see `build_trees`."""

    def cost(ends: Tokens) -> float:
        return len(ends) * attention_break_even + attention_pairs(ends, attention_block)

    parts: list[list[tuple[int, int]]] = []
    path = ends = np.arange(0)
    for index, shared in chain:
        own = lengths[index]
        if parts and shared and len(ends) + own - shared <= max_tokens:
            longer, joined = _extended(path, ends, shared, own)
            # An infinite factor would make all costs equal.
            if attention_break_even == np.inf or cost(joined) < cost(ends) + cost(_alone(own)):
                parts[-1].append((index, shared))
                path, ends = longer, joined
                continue
        parts.append([(index, 0)])
        path, ends = np.arange(own), _alone(own)
    return list(parts)


def _alone(length: int) -> Tokens:
    """Return the subtree ends of a single sequence."""
    return np.full(length, length)


def _extended(path: Tokens, ends: Tokens, shared: int, length: int) -> tuple[Tokens, Tokens]:
    """Return the path of a chain's next sequence, and the subtree ends of the extended tree."""
    total = len(ends) + length - shared
    path = np.concatenate([path[:shared], np.arange(len(ends), total)])
    ends = np.concatenate([ends, np.zeros(length - shared, dtype=np.int64)])
    ends[path] = total
    return path, ends


def tree_of_chain(chain: Chain, lengths: Sequence[int]) -> PrefixTree:
    """Build the tree of a chain's sequences, each sharing a prefix with its predecessor."""
    tree = PrefixTree(length=0, tokens=[], paths={})
    previous = np.arange(0)
    for index, shared in chain:
        own = np.arange(tree.length, tree.length + lengths[index] - shared)
        previous = tree.paths[index] = np.concatenate([previous[:shared], own])
        tree.tokens.append((index, shared))
        tree.length += len(own)
    return tree


def single_sequence(index: int, length: int) -> PrefixTree:
    """Build a tree of a single sequence."""
    return PrefixTree(length=length, tokens=[(index, 0)], paths={index: np.arange(length)})


def _common_prefix(first: Tokens, second: Tokens) -> int:
    """Return the length of the common prefix."""
    size = min(len(first), len(second))
    differing = np.flatnonzero(first[:size] != second[:size])
    return int(differing[0]) if len(differing) else size
