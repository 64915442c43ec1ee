"""Prefix trees and their rows: no token is lost, and attention is that of separate samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentrl.training.batching import prefix_tree
from agentrl.training.batching.packing import pack_rows, pack_single_rows
from agentrl.training.batching.prefix_tree import build_trees

SAMPLES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)
MANY = 10_000


def keys(samples):
    return [np.array(sample, dtype=np.int64) for sample in samples]


def test_siblings_with_a_common_prefix_become_one_tree():
    (tree,) = build_trees(keys([[7, 8, 1, 2], [7, 8, 3], [7, 8, 1, 4]]), MANY, np.inf)
    assert tree.length == 6
    assert [(index, shared) for index, shared in tree.tokens] == [(0, 0), (2, 3), (1, 2)]
    assert tree.paths[2].tolist() == [0, 1, 2, 4]
    assert tree.paths[1].tolist() == [0, 1, 5]
    # 7 and 8 are seen by all; 1 by its own two; the others by themselves
    assert tree.subtree_ends().tolist() == [6, 6, 5, 4, 5, 6]


def test_equal_samples_take_the_space_of_one():
    (tree,) = build_trees(keys([[1, 2], [1, 2], [1]]), MANY, np.inf)
    assert tree.length == 2
    assert {i: p.tolist() for i, p in tree.paths.items()} == {0: [0, 1], 1: [0, 1], 2: [0]}


@given(samples=SAMPLES, most=st.integers(1, 40), width=st.sampled_from([1.0, 10.0, np.inf]))
def test_every_token_attends_to_exactly_its_own_sample(samples, most, width):
    trees = build_trees(keys(samples), most, width)
    assert sorted(i for tree in trees for i in tree.paths) == list(range(len(samples)))
    for tree in trees:
        assert len(tree.paths) == 1 or tree.length <= most
        ends = tree.subtree_ends()
        content = np.zeros(tree.length, dtype=np.int64)
        for index, path in tree.paths.items():
            content[path] = samples[index]
        for index, path in tree.paths.items():
            assert content[path].tolist() == samples[index]
            for depth, place in enumerate(path):
                seen = [k for k in range(tree.length) if k <= place < ends[k]]
                assert seen == path[: depth + 1].tolist()
        total = sum(len(samples[index]) - shared for index, shared in tree.tokens)
        assert total == tree.length


def test_samples_share_a_tree_only_if_that_is_cheaper():
    alike = [[1, 2, 3] + [k] * 30 for k in range(4, 8)]
    assert (
        len(build_trees(keys(alike), MANY, attention_break_even=1.0)) == 4
    )  # three tokens saved, at 33 x 30 masked
    assert len(build_trees(keys(alike), MANY, attention_break_even=1e6)) == 1


@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=30), most=st.integers(1, 400))
def test_rows_hold_each_tree_once_within_the_budget(lengths, most):
    trees = [prefix_tree.single_sequence(index, length) for index, length in enumerate(lengths)]
    batches = pack_rows(trees, most)
    assert sorted(
        index for batch in batches for row in batch for tree in row for index in tree.paths
    ) == list(range(len(lengths)))
    for batch in batches:
        width = max(sum(tree.length for tree in row) for row in batch)
        assert width == max(tree.length for row in batch for tree in row)
        assert len(batch) == 1 or len(batch) * width <= most
    assert batches == pack_rows(trees, most)


def test_longest_trees_come_first_and_short_ones_fill_rows():
    trees = [
        prefix_tree.single_sequence(index, length) for index, length in enumerate([3, 9, 4, 9, 2])
    ]
    placed = [
        [[next(iter(tree.paths)) for tree in row] for row in batch]
        for batch in pack_rows(trees, 27)
    ]
    assert placed == [[[1], [3], [2, 0, 4]]]
    apart = pack_rows(trees, 27, fill=False)
    assert [[len(row) for row in batch] for batch in apart] == [[1, 1, 1], [1, 1]]


@given(SAMPLES, st.integers(1, 20))
def test_single_row_batches_hold_every_sample_once_within_the_budget(samples, most):
    trees = [prefix_tree.single_sequence(index, len(key)) for index, key in enumerate(samples)]
    found = pack_single_rows(trees, most)
    assert sorted(i for [line] in found for tree in line for i in tree.paths) == [
        *range(len(trees))
    ]
    for [line] in found:
        assert len(line) == 1 or sum(tree.length for tree in line) <= most
    assert found[0][0][0].length == max(map(len, samples))
