"""Common prefixes are computed once: token sequences as trees.

Episodes of a group share a prefix: instructions, first screen, and often the first replies.
Laid out depth first, a token's descendants follow it at once, so that attention needs only one
number per token: the column where its subtree ends. A token attends to those before it whose
subtrees have not ended. Nothing is approximated.

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
    """Number of tokens, shared ones counted once."""
    tokens: list[tuple[int, int]]
    """(sequence, number of its first tokens that an earlier sequence has), depth first."""
    paths: dict[int, Tokens]
    """The positions of each sequence's tokens in the tree, int64[L]."""

    def subtree_ends(self) -> Tokens:
        """int64[length]: the position where each token's subtree ends."""
        result = np.zeros(self.length, dtype=np.int64)
        for path in self.paths.values():
            # Sequences come depth first: the last one that contains a token ends its subtree.
            result[path] = path[-1] + 1
        return result


def build_trees(
    keys: Sequence[Tokens],
    max_tokens: int,
    attention_break_even: float,
    attention_block: int | None = None,
) -> list[PrefixTree]:
    """Group sequences into trees wherever that is cheaper than computing them separately.

    A tree of n tokens costs n * `attention_break_even` + `attention_pairs`: the part linear in the
    tokens, and the attention.

    Args:
        keys: of each sequence, equal where tokens and images are equal.
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
    """The pairs of a query and a key that the attention computes for a row.

    Args:
        ends: int64[L], where the subtree of each token ends.
        block: side of the blocks, in tokens, that are skipped where they are masked; None computes
            the whole row.
    """
    if block is None:
        return len(ends) ** 2
    starts = np.arange(0, len(ends), block)
    # Queries from a block of keys on attend to it, up to where its last subtree ends.
    last = (np.maximum.reduceat(ends, starts) - 1) // block
    return int((last - starts // block + 1).sum()) * block**2


Chain = Sequence[tuple[int, int]]
"""(sequence, number of its first tokens that the previous sequence has), in sorted order."""


def prefix_chain(keys: Sequence[Tokens]) -> Chain:
    """The sequences in an order in which each shares as much as possible with the one before."""
    # As bytes, sequences are compared in C; in sorted order equal prefixes are neighbors.
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
    """The parts of a chain that are trees; see `build_trees`."""

    def cost(ends: Tokens) -> float:
        return len(ends) * attention_break_even + attention_pairs(ends, attention_block)

    parts: list[list[tuple[int, int]]] = []
    path = ends = np.arange(0)
    for index, shared in chain:
        own = lengths[index]
        if parts and shared and len(ends) + own - shared <= max_tokens:
            longer, joined = _extended(path, ends, shared, own)
            # Infinity would make all costs equal.
            if attention_break_even == np.inf or cost(joined) < cost(ends) + cost(_alone(own)):
                parts[-1].append((index, shared))
                path, ends = longer, joined
                continue
        parts.append([(index, 0)])
        path, ends = np.arange(own), _alone(own)
    return list(parts)


def _alone(length: int) -> Tokens:
    """The subtree ends of one sequence."""
    return np.full(length, length)


def _extended(path: Tokens, ends: Tokens, shared: int, length: int) -> tuple[Tokens, Tokens]:
    """The path of the next sequence of a chain, and the subtree ends of the tree with it."""
    total = len(ends) + length - shared
    path = np.concatenate([path[:shared], np.arange(len(ends), total)])
    ends = np.concatenate([ends, np.zeros(length - shared, dtype=np.int64)])
    ends[path] = total
    return path, ends


def tree_of_chain(chain: Chain, lengths: Sequence[int]) -> PrefixTree:
    """The tree of sequences that each share a prefix with the one before."""
    tree = PrefixTree(length=0, tokens=[], paths={})
    previous = np.arange(0)
    for index, shared in chain:
        own = np.arange(tree.length, tree.length + lengths[index] - shared)
        previous = tree.paths[index] = np.concatenate([previous[:shared], own])
        tree.tokens.append((index, shared))
        tree.length += len(own)
    return tree


def single_sequence(index: int, length: int) -> PrefixTree:
    """A tree of one sequence."""
    return PrefixTree(length=length, tokens=[(index, 0)], paths={index: np.arange(length)})


def _common_prefix(first: Tokens, second: Tokens) -> int:
    """Length of the common prefix."""
    size = min(len(first), len(second))
    differing = np.flatnonzero(first[:size] != second[:size])
    return int(differing[0]) if len(differing) else size
