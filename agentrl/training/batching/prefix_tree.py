"""Common prefixes are computed once: token sequences as trees.

Episodes of a group share a prefix: instructions, first screen, and often the first replies.
Laid out depth first, a token's descendants follow it at once, so that attention needs only one
number per token: the column where its subtree ends. A token attends to those before it whose
subtrees have not ended. Nothing is approximated.

Shapes: S sequences of L tokens each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    keys: Sequence[Tokens], max_tokens: int, attention_break_even: float
) -> list[PrefixTree]:
    """Group sequences into trees wherever that is cheaper than computing them separately.

    A row of n tokens costs n * (`attention_break_even` + n): the part linear in the tokens, and
    the attention, whose masked parts are computed, too.

    Args:
        keys: of each sequence, equal where tokens and images are equal.
        max_tokens: maximum length of a tree with more than one sequence.
        attention_break_even: see above; infinite if masked parts of the attention are free.

    Returns:
        Trees that contain each sequence once. Deterministic.
    """
    order = sorted(range(len(keys)), key=lambda index: (keys[index].astype(">i8").tobytes(), index))
    trees: list[PrefixTree] = []
    previous: int | None = None
    for index in order:
        key = keys[index]
        shared = 0 if previous is None else _common_prefix(keys[previous], key)
        if (
            previous is not None
            and shared
            and _is_cheaper(trees[-1], shared, len(key), max_tokens, attention_break_even)
        ):
            tree = trees[-1]
        else:
            tree, shared = PrefixTree(length=0, tokens=[], paths={}), 0
            trees.append(tree)
        prefix = tree.paths[previous][:shared] if shared and previous is not None else key[:0]
        own = np.arange(tree.length, tree.length + len(key) - shared)
        tree.paths[index] = np.concatenate([prefix, own])
        tree.tokens.append((index, shared))
        tree.length += len(own)
        previous = index
    return trees


def single_sequence(index: int, length: int) -> PrefixTree:
    """A tree of one sequence."""
    return PrefixTree(length=length, tokens=[(index, 0)], paths={index: np.arange(length)})


def _common_prefix(first: Tokens, second: Tokens) -> int:
    """Length of the common prefix."""
    size = min(len(first), len(second))
    differing = np.flatnonzero(first[:size] != second[:size])
    return int(differing[0]) if len(differing) else size


def _is_cheaper(
    tree: PrefixTree, shared: int, length: int, max_tokens: int, attention_break_even: float
) -> bool:
    together = tree.length + length - shared
    if together > max_tokens:
        return False
    if attention_break_even == np.inf:
        return True
    separate = _cost(tree.length, attention_break_even) + _cost(length, attention_break_even)
    return _cost(together, attention_break_even) < separate


def _cost(length: int, attention_break_even: float) -> float:
    return length * (attention_break_even + length)
