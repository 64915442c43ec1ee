import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.training.batching import micro_batches, num_sampled, teaches, to_batch, to_samples
from agentrl.types import Outcome
from tests.training.samples import episode, sample, turn

PICTURES = tuple(np.full((28, 28, 3), k, np.uint8) for k in range(3))


def conversation(replies):
    """Turns of one conversation: each prompt holds all that was said before."""
    said, turns = [1], []
    for k, reply in enumerate(replies):
        turns.append(turn(said, reply, images=PICTURES[: k + 1]))
        said = [*said, *reply, 50 + k]
    return turns


def test_turns_that_extend_each_other_become_one_sample():
    [merged] = to_samples(episode(conversation([[2, 3], [4]])), [0.5, -1.0])
    assert merged.token_ids == (1, 2, 3, 50, 4)
    assert merged.loss_mask == (False, True, True, False, True)
    assert merged.advantages == (0.0, 0.5, 0.5, 0.0, -1.0)
    assert merged.logprobs == (0.0, -0.1, -0.2, 0.0, -0.1)
    assert merged.images == PICTURES[:2]


def test_a_turn_that_starts_anew_starts_a_new_sample():
    turns = [turn([1], [2]), turn([9], [3]), turn([9, 3, 8], [4])]
    first, second = to_samples(episode(turns), [1.0, 2.0, 3.0])
    assert first.token_ids == (1, 2)
    assert second.token_ids == (9, 3, 8, 4)
    assert second.advantages == (0.0, 2.0, 0.0, 3.0)


def test_a_prompt_that_repeats_the_words_but_not_the_reply_is_not_merged():
    assert len(to_samples(episode([turn([1], [2]), turn([1, 3], [4])]), [1.0, 1.0])) == 2
    assert len(to_samples(episode([turn([1], [2, 3]), turn([1, 2], [4])]), [1.0, 1.0])) == 2


def test_a_void_episode_gives_no_samples():
    assert to_samples(episode([turn()], Outcome.DEVICE_ERROR), [1.0]) == []


def test_an_episode_without_turns_gives_no_samples():
    assert to_samples(episode([]), []) == []


@given(
    replies=st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
def test_every_layout_gives_the_same_advantage_to_the_same_tokens(replies, data):
    credit = data.draw(st.lists(st.floats(-2, 2), min_size=len(replies), max_size=len(replies)))
    whole = conversation(replies)
    alone = [turn([99 + k], reply) for k, reply in enumerate(replies)]
    seen = [
        [
            (token, advantage, logprob)
            for s in to_samples(episode(turns), credit)
            for token, mask, advantage, logprob in zip(
                s.token_ids, s.loss_mask, s.advantages, s.logprobs, strict=True
            )
            if mask
        ]
        for turns in (whole, alone)
    ]
    assert seen[0] == seen[1]
    assert len(to_samples(episode(whole), credit)) == 1


@given(lengths=st.lists(st.integers(1, 100), max_size=40), budget=st.integers(1, 400))
def test_micro_batches_hold_each_sample_once_within_the_budget(lengths, budget):
    parts = micro_batches(lengths, budget)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    for part in parts:
        assert len(part) == 1 or len(part) * max(lengths[i] for i in part) <= budget
    assert parts == micro_batches(lengths, budget)


def test_longest_samples_come_first():
    assert micro_batches([3, 9, 4, 9], 18) == [[1, 3], [2, 0]]


def test_a_batch_is_padded_on_the_right_and_holds_every_picture_once(kit):
    samples = [sample(kit, 0), sample(kit, 1, reply=2, pictures=2)]
    batch = to_batch(samples, kit)
    lengths = [len(s.token_ids) for s in samples]
    assert batch.token_ids.shape == (2, max(lengths))
    assert batch.attention_mask.sum(-1).tolist() == lengths
    assert batch.token_ids[0, : lengths[0]].tolist() == list(samples[0].token_ids)
    assert batch.loss_mask.sum(-1).tolist() == [num_sampled(s) for s in samples]
    assert len(batch.pixels["image_grid_thw"]) == 3
    torch.testing.assert_close(batch.logprobs[0, : lengths[0]], torch.tensor(samples[0].logprobs))


def test_a_sample_teaches_where_a_token_has_an_advantage(kit):
    assert teaches(sample(kit, 0, advantage=0.5))
    assert not teaches(sample(kit, 0, advantage=0.0))


def test_advantages_must_be_one_for_each_turn():
    with pytest.raises(AssertionError):
        to_samples(episode([turn()]), [])
