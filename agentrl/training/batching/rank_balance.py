"""Micro-batches of about equal cost, for ranks that wait for each other in every pass.

A pass takes as long as its most expensive micro-batch. Filling micro-batches up to the token budget
would leave most ranks idle if a step has fewer full micro-batches than ranks.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from agentrl.training.batching import prefix_tree
from agentrl.training.batching.packing import Packing, pack_micro_batches, sequence_keys
from agentrl.training.batching.prefix_tree import Chain, PrefixTree, Tokens
from agentrl.types import TokenSequence

Rows = list[list[PrefixTree]]

_SIZES = (1.0, 0.75, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25, 0.2, 0.15, 0.12)
"""Tree sizes to try, relative to a rank's share of a pass: smaller trees repeat more of their
prefixes, but are easier to balance."""


def pack_for_ranks(
    sequences: Sequence[TokenSequence], packing: Packing, image_token_id: int | None, ranks: int
) -> list[Rows]:
    """Pack sequences into micro-batches for ranks that make the same number of passes.

    Tries several layouts, including full micro-batches, and takes the layout whose passes cost
    least.

    Args:
        sequences: S sequences of all ranks.
        packing: how to lay out sequences; `packing.max_tokens` limits each micro-batch.
        image_token_id: the token that stands for images.
        ranks: number of ranks that compute different micro-batches; for 1, see
            `pack_micro_batches`.

    Returns:
        [micro-batches][rows][trees], the most expensive first. The first pass takes the first
        `ranks` micro-batches, and so on; the last pass may have fewer. Deterministic.
    """
    if ranks == 1 or not sequences:
        return pack_micro_batches(sequences, packing, image_token_id)
    keys = sequence_keys(sequences, packing, image_token_id)
    costs = LayoutCosts(keys, packing)
    chain = prefix_tree.prefix_chain(keys)
    filled = pack_micro_batches(sequences, packing, image_token_id)
    layouts = [
        sorted(filled, key=lambda rows: -costs.of_micro_batch(rows)),
        *(
            _balance(parts, chain, costs, ranks, alike=alike)
            for parts in _divisions(chain, costs, ranks)
            for alike in (False, True)
        ),
    ]
    return min(layouts, key=lambda batches: costs.of_passes(batches, ranks))


class LayoutCosts:
    """Costs of forward and backward passes, in units of a decoder token without attention."""

    def __init__(self, keys: Sequence[Tokens], packing: Packing) -> None:
        self.packing = packing
        self.lengths = [len(key) for key in keys]
        self._num_image = [np.cumsum(key < 0, dtype=np.int32) for key in keys]

    def of_tree(self, tree: PrefixTree) -> float:
        """Return the cost of a tree in its own row."""
        return self.of_row([tree]) + self._of_images(tree)

    def of_row(self, trees: Sequence[PrefixTree], padding: int = 0) -> float:
        """Return the decoder's cost for a row, including the masked parts that it computes."""
        width = sum(tree.length for tree in trees) + padding
        return width + self.attention_pairs(trees, padding) / self.packing.attention_break_even

    def attention_pairs(self, trees: Sequence[PrefixTree], padding: int = 0) -> int:
        """Return the number of query-key pairs that attention computes for a row."""
        # Kernels without masks separate sequences by their lengths.
        if not self.packing.attention_masks:
            return sum(tree.length**2 for tree in trees)
        if self.packing.attention_block is None:
            return (sum(tree.length for tree in trees) + padding) ** 2
        starts = np.cumsum([0, *(tree.length for tree in trees)]).tolist()
        ends = [tree.subtree_ends() + start for tree, start in zip(trees, starts, strict=False)]
        return prefix_tree.attention_pairs(np.concatenate(ends), self.packing.attention_block)

    def of_micro_batch(self, rows: Rows) -> float:
        """Return the cost of one rank's pass over a micro-batch."""
        images = sum(self._of_images(tree) for row in rows for tree in row)
        lengths = [sum(tree.length for tree in row) for row in rows]
        return images + sum(
            self.of_row(row, max(lengths) - length)
            for row, length in zip(rows, lengths, strict=True)
        )

    def of_passes(self, batches: Sequence[Rows], ranks: int) -> float:
        """Return the cost of each pass's most expensive micro-batch, summed over passes."""
        costs = [self.of_micro_batch(rows) for rows in batches]
        return sum(max(costs[at : at + ranks]) for at in range(0, len(costs), ranks))

    def _of_images(self, tree: PrefixTree) -> float:
        count = 0
        for index, shared in tree.tokens:
            images = self._num_image[index]
            count += int(images[-1]) - (int(images[shared - 1]) if shared else 0)
        return count * self.packing.image_token_cost


def _divisions(chain: Chain, costs: LayoutCosts, ranks: int) -> Iterator[list[Chain]]:
    """Yield divisions of the sequences into trees that stay together, largest trees first."""
    if costs.packing.shares_prefixes:
        max_tokens = costs.packing.max_tokens
        whole = _split(chain, costs, max_tokens)
        total = sum(costs.lengths[index] - shared for part in whole for index, shared in part)
        passes = math.ceil(total / ranks / max_tokens)
        # Also split where little is shared: siblings share more than instructions, and half of the
        # sequences share at least `common` tokens.
        common = sorted(shared for _, shared in chain)[len(chain) // 2]
        known: list[list[Chain]] = []
        for least in sorted({0, common}):
            loose = [(index, shared if shared >= least else 0) for index, shared in chain]
            # More micro-batches are easier to balance, so try fewer sizes.
            for size in _SIZES[::passes]:
                parts = _split(loose, costs, math.ceil(total / ranks / passes * size))
                if parts not in known:
                    known.append(parts)
                    yield parts
    yield [[(index, 0)] for index, _ in chain]


def _split(chain: Chain, costs: LayoutCosts, max_tokens: int) -> list[Chain]:
    packing = costs.packing
    return prefix_tree.split_chain(
        chain, costs.lengths, max_tokens, packing.attention_break_even, packing.attention_block
    )


def _balance(
    parts: Sequence[Chain], chain: Chain, costs: LayoutCosts, ranks: int, *, alike: bool
) -> list[Rows]:
    """Distribute trees over as few passes as possible, each tree to the cheapest micro-batch.

    Args:
        parts: the trees.
        chain: all sequences.
        costs: costs of layouts of these sequences.
        ranks: number of micro-batches per pass.
        alike: whether a pass gets trees of similar cost, which need less padding, or any trees,
            which are easier to balance.
    """
    trees = [prefix_tree.tree_of_chain(part, costs.lengths) for part in parts]
    priced = sorted(((costs.of_tree(tree), tree) for tree in trees), key=lambda one: -one[0])
    max_tokens = costs.packing.max_tokens
    passes = max(1, math.ceil(sum(tree.length for tree in trees) / ranks / max_tokens))
    # Trees are not cut, so the minimum number of passes may not suffice.
    while True:
        strips, count = (_strips(priced, passes), ranks) if alike else ([priced], passes * ranks)
        filled = [_fill(strip, count, max_tokens) for strip in strips]
        if None not in filled:
            break
        passes += 1
    ends = _ChainPart(chain)
    batches = []
    for own in (own for bins in filled for own in bins or () if own):
        layouts = [_lay_out(own, costs)]
        # Trees with a common prefix that ended up in the same micro-batch can share it again.
        if costs.packing.shares_prefixes:
            joined = _split(ends.of(own), costs, max_tokens)
            trees = [prefix_tree.tree_of_chain(part, costs.lengths) for part in joined]
            layouts.append(_lay_out(trees, costs))
        batches.append(min(layouts, key=costs.of_micro_batch))
    return sorted(batches, key=lambda rows: -costs.of_micro_batch(rows))


class _ChainPart:
    """Selects chains of some of a chain's sequences."""

    def __init__(self, chain: Chain) -> None:
        self._indices, self._shared = np.array(chain).T
        self._places = {index: place for place, (index, _) in enumerate(chain)}

    def of(self, trees: Sequence[PrefixTree]) -> Chain:
        """Return the chain of the trees' sequences."""
        places = np.array(sorted(self._places[index] for tree in trees for index, _ in tree.tokens))
        # Two sequences share the minimum of the prefixes shared by neighbors between them.
        steps = self._shared[: places[-1] + 1]
        shared = (
            [0, *np.minimum.reduceat(steps, places[:-1] + 1).tolist()] if places[1:].size else [0]
        )
        return list(zip(self._indices[places].tolist(), shared, strict=True))


Priced = Sequence[tuple[float, PrefixTree]]


def _strips(priced: Priced, count: int) -> list[Priced]:
    """Cut a list of trees into at most `count` parts of about the same cost."""
    ends = np.cumsum([cost for cost, _ in priced])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    bounds = sorted({0, *cuts.tolist(), len(priced)})
    return [priced[begin:end] for begin, end in pairwise(bounds)]


def _fill(priced: Priced, count: int, max_tokens: int) -> list[list[PrefixTree]] | None:
    """Distribute trees over `count` micro-batches; return None if they do not fit."""
    bins: list[list[PrefixTree]] = [[] for _ in range(count)]
    sizes = [0] * count
    heap = [(0.0, number) for number in range(count)]
    for cost, tree in priced:
        # Use the cheapest micro-batch with room. An empty micro-batch has room for any tree.
        full: list[tuple[float, int]] = []
        while heap and sizes[heap[0][1]] and sizes[heap[0][1]] + tree.length > max_tokens:
            full.append(heapq.heappop(heap))
        if not heap:
            return None
        load, number = heap[0]
        bins[number].append(tree)
        sizes[number] += tree.length
        heapq.heapreplace(heap, (load + cost, number))
        for one in full:
            heapq.heappush(heap, one)
    return bins


def _lay_out(trees: Sequence[PrefixTree], costs: LayoutCosts) -> Rows:
    """Lay out a micro-batch's trees in the cheapest number of rows."""
    found: Rows = [list(trees)]
    if costs.packing.is_single_row:
        return found
    cheapest = costs.of_micro_batch(found)
    count = 2
    while count <= len(trees):
        rows = _spread(trees, count)
        width = max(sum(tree.length for tree in row) for row in rows)
        cost = costs.of_micro_batch(rows)
        if count * width <= costs.packing.max_tokens and cost < cheapest:
            found, cheapest = rows, cost
        # With many short trees, trying every number would take too long.
        count = max(count + 1, int(count * 1.2))
    return found


def _spread(trees: Sequence[PrefixTree], count: int) -> Rows:
    """Distribute trees over rows, longest first, each to the shortest row."""
    rows: Rows = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for tree in sorted(trees, key=lambda tree: -tree.length):
        length, number = heap[0]
        rows[number].append(tree)
        heapq.heapreplace(heap, (length + tree.length, number))
    return rows
