"""Every rank computes about the same in every pass, and every sample is computed once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.training.batching.collate import sequence_order
from agentrl.training.batching.packing import Packing, pack_micro_batches, sequence_keys
from agentrl.training.batching.rank_balance import LayoutCosts, pack_for_ranks
from agentrl.types import TokenSequence

IMAGE = 99
SCREENS = [np.full((2, 2, 3), k, np.uint8) for k in range(4)]
PACKING = Packing(max_tokens=100, attention_break_even=50.0, image_token_cost=0.5)


def sequence(ids, images=()):
    return TokenSequence(
        token_ids=tuple(ids),
        sampled_positions=(len(ids) - 1,),
        logprobs=(0.0,),
        versions=(0,),
        turns=(0,),
        images=tuple(images),
        episode=0,
    )


@st.composite
def sequences(draw):
    """Some share instructions, some a screen, and some the beginning of a reply."""
    found = []
    for _ in range(draw(st.integers(1, 20))):
        screen = draw(st.integers(0, 3))
        reply = draw(st.lists(st.integers(1, 2), min_size=1, max_size=40))
        found.append(sequence([7] * 8 + [IMAGE] * 4 * screen + reply, SCREENS[:screen][:1]))
    return found


def tokens(rows):
    return len(rows) * max(sum(tree.length for tree in row) for row in rows)


@given(
    items=sequences(),
    ranks=st.integers(2, 9),
    max_tokens=st.integers(1, 300),
    share=st.booleans(),
    masks=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_sample_is_computed_once_within_the_token_budget(
    items, ranks, max_tokens, share, masks
):
    packing = replace(PACKING, max_tokens=max_tokens, share_prefixes=share, attention_masks=masks)
    batches = pack_for_ranks(items, packing, IMAGE, ranks)
    order = [index for rows in batches for index in sequence_order(rows)]
    assert sorted(order) == list(range(len(items)))
    for rows in batches:
        trees = [tree for row in rows for tree in row]
        assert tokens(rows) <= max_tokens or len(trees) == 1
        assert masks or len(rows) == 1
        assert (share and masks) or all(len(tree.tokens) == 1 for tree in trees)
    costs = LayoutCosts(sequence_keys(items, packing, IMAGE), packing)
    prices = [costs.of_micro_batch(rows) for rows in batches]
    assert prices == sorted(prices, reverse=True)
    filled = pack_micro_batches(items, packing, IMAGE)
    assert costs.of_passes(batches, ranks) <= costs.of_passes(filled, ranks) + 1e-6


def test_one_rank_fills_micro_batches():
    items = [sequence(range(1, 20 + k)) for k in range(12)]
    filled, found = (
        [[sequence_order([row]) for row in rows] for rows in batches]
        for batches in (
            pack_micro_batches(items, PACKING, IMAGE),
            pack_for_ranks(items, PACKING, IMAGE, 1),
        )
    )
    assert found == filled


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_are_busy_where_one_micro_batch_would_hold_everything(ranks):
    rng = np.random.default_rng(0)
    items = [
        sequence([7] * 200 + [IMAGE] * 300 + rng.integers(1, 90, rng.integers(20, 128)).tolist(),
                 [np.full((2, 2, 3), k, np.uint8)])
        for k in range(64)
    ]  # fmt: skip
    packing = replace(PACKING, max_tokens=16384, attention_break_even=18_800.0)
    batches = pack_for_ranks(items, packing, IMAGE, ranks)
    costs = LayoutCosts(sequence_keys(items, packing, IMAGE), packing)
    mean = sum(costs.of_micro_batch(rows) for rows in batches) / ranks
    assert mean / costs.of_passes(batches, ranks) > 0.9
    single = costs.of_passes(pack_micro_batches(items, packing, IMAGE), 1)
    assert single / costs.of_passes(batches, ranks) > 0.9 * ranks


def test_siblings_stay_together_although_all_samples_share_instructions():
    groups = [[7] * 30 + [group] * 100 for group in range(10, 18)]
    items = [sequence([*prompt, 40 + k, 50]) for k in range(4) for prompt in groups]
    packing = replace(PACKING, max_tokens=16384, attention_break_even=18_800.0)
    batches = pack_for_ranks(items, packing, IMAGE, 4)
    assert [len(sequence_order(rows)) for rows in batches] == [8] * 4
    assert [tokens(rows) for rows in batches] == [30 + 2 * (100 + 4 * 2)] * 4
