"""What several samples begin with is computed once: samples as trees, trees as rows.

Siblings begin alike: the same instructions and the same screen, and for as long as they answer the
same. Laid out depth first, a token's descendants follow it at once, so that one number for each
token, the column where its subtree ends, is all that attention needs: a token sees those before it
that have not ended. Nothing is approximated.

Shapes: S samples of L tokens each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Tree:
    """Samples that begin alike, or a sample alone."""

    length: int
    """Tokens, each counted once."""
    tokens: list[tuple[int, int]]
    """(sample, first token of it that no sample before it has), depth first."""
    paths: dict[int, Tokens]
    """For each sample where in the tree its tokens stand, int64[L]."""

    def ends(self) -> Tokens:
        """int64[length]: the place where each token's subtree ends."""
        result = np.zeros(self.length, dtype=np.int64)
        for path in self.paths.values():
            # The samples come depth first: the last one that holds a token ends it.
            result[path] = path[-1] + 1
        return result


def grow(keys: Sequence[Tokens], most: int, width: float) -> list[Tree]:
    """Trees of samples, where that is cheaper than the samples one by one.

    A row costs its tokens times (`width` + its tokens): what is linear in the tokens, and the
    attention, whose masked parts are computed as well.

    Args:
        keys: of each sample, equal where tokens (and pictures) are equal.
        most: tokens of a tree that holds more than one sample.
        width: see above; infinite where masked parts of the attention cost nothing.

    Returns:
        Each sample stands in one of them. The same keys always give the same trees.
    """
    order = sorted(range(len(keys)), key=lambda index: (keys[index].astype(">i8").tobytes(), index))
    trees: list[Tree] = []
    previous: int | None = None
    for index in order:
        key = keys[index]
        shared = 0 if previous is None else _common(keys[previous], key)
        if previous is not None and shared and _pays(trees[-1], shared, len(key), most, width):
            tree = trees[-1]
        else:
            tree, shared = Tree(length=0, tokens=[], paths={}), 0
            trees.append(tree)
        begin = tree.paths[previous][:shared] if shared and previous is not None else key[:0]
        own = np.arange(tree.length, tree.length + len(key) - shared)
        tree.paths[index] = np.concatenate([begin, own])
        tree.tokens.append((index, shared))
        tree.length += len(own)
        previous = index
    return trees


def alone(index: int, length: int) -> Tree:
    """A tree of one sample."""
    return Tree(length=length, tokens=[(index, 0)], paths={index: np.arange(length)})


def _common(one: Tokens, other: Tokens) -> int:
    """How many tokens both begin with."""
    size = min(len(one), len(other))
    differing = np.flatnonzero(one[:size] != other[:size])
    return int(differing[0]) if len(differing) else size


def _pays(tree: Tree, shared: int, length: int, most: int, width: float) -> bool:
    together = tree.length + length - shared
    if together > most:
        return False
    apart = _cost(tree.length, width) + _cost(length, width)
    return width == np.inf or _cost(together, width) < apart


def _cost(length: int, width: float) -> float:
    return length * (width + length)


def rows(trees: Sequence[Tree], most: int, fill: bool = True) -> list[list[list[Tree]]]:
    """Micro-batches of rows of trees, the longest first.

    The longest tree decides how long the rows of a micro-batch are; shorter trees share a row while
    they fit.

    Args:
        trees: any number.
        most: tokens of a micro-batch with its padding; a tree that is longer goes alone.
        fill: whether trees share rows; else each has its own.

    Returns:
        [micro-batches][rows][trees]; a job that runs out of memory does so at the first. The same
        trees always give the same split.
    """
    batches: list[list[list[Tree]]] = []
    free: list[int] = []
    width = 0
    for tree in sorted(trees, key=lambda tree: -tree.length):
        place = next((i for i, space in enumerate(free) if fill and space >= tree.length), None)
        if place is not None:
            batches[-1][place].append(tree)
            free[place] -= tree.length
        elif batches and (len(batches[-1]) + 1) * width <= most:
            batches[-1].append([tree])
            free.append(width - tree.length)
        else:
            width = tree.length
            batches.append([[tree]])
            free = [0]
    return batches


def lines(trees: Sequence[Tree], most: int) -> list[list[list[Tree]]]:
    """Micro-batches of a single row without padding, the longest trees first.

    Args:
        trees: any number.
        most: tokens of a row; a tree that is longer goes alone.

    Returns:
        [micro-batches][1][trees]; the same trees always give the same split.
    """
    batches: list[list[list[Tree]]] = []
    free: list[int] = []
    for tree in sorted(trees, key=lambda tree: -tree.length):
        place = next((i for i, space in enumerate(free) if space >= tree.length), None)
        if place is None:
            batches.append([[tree]])
            free.append(most - tree.length)
        else:
            batches[place][0].append(tree)
            free[place] -= tree.length
    return batches
