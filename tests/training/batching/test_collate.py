import dataclasses
import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.training.batching.collate import build_batch, upload
from agentrl.training.batching.packing import Packing, pack_micro_batches
from agentrl.training.learner.micro_batches import single_batch
from agentrl.types import Outcome
from tests.training.samples import episode, sample, training_samples, turn

PICTURES = tuple(np.full((28, 28, 3), k, np.uint8) for k in range(3))


def conversation(replies):
    """Turns of one conversation: each prompt holds all that was said before."""
    said, turns = [1], []
    for k, reply in enumerate(replies):
        turns.append(turn(said, reply, images=PICTURES[: k + 1]))
        said = [*said, *reply, 50 + k]
    return turns


def samples_of(turns, per_turn, outcome=Outcome.TERMINATED):
    values = [v for v, turn in zip(per_turn, turns, strict=True) for _ in turn.reply_ids]
    return training_samples(episode(turns, outcome), values)


def test_turns_that_extend_each_other_become_one_sample():
    [merged] = samples_of(conversation([[2, 3], [4]]), [0.5, -1.0])
    assert merged.token_ids == (1, 2, 3, 50, 4)
    assert merged.sampled_positions == (1, 2, 4)
    assert merged.advantages == (0.5, 0.5, -1.0)
    assert merged.logprobs == (-0.1, -0.2, -0.1)
    assert merged.turns == (0, 0, 1)
    assert merged.versions == (0, 0, 0)
    assert merged.images == PICTURES[:2]


def test_tokens_of_a_turn_may_have_different_advantages():
    turns = conversation([[2, 3], [4]])
    [one] = training_samples(episode(turns), [0.5, 0.25, -1.0], [1.0, 2.0, 3.0], index=7)
    assert (one.advantages, one.returns, one.episode) == ((0.5, 0.25, -1.0), (1.0, 2.0, 3.0), 7)


def test_a_turn_with_a_fresh_prompt_starts_a_new_sample():
    turns = [turn([1], [2]), turn([9], [3]), turn([9, 3, 8], [4])]
    first, second = samples_of(turns, [1.0, 2.0, 3.0])
    assert first.token_ids == (1, 2)
    assert second.token_ids == (9, 3, 8, 4)
    assert (second.sampled_positions, second.advantages, second.turns) == (
        (1, 3),
        (2.0, 3.0),
        (1, 2),
    )


def test_a_prompt_that_repeats_the_prompt_but_not_the_reply_starts_a_new_sample():
    assert len(samples_of([turn([1], [2]), turn([1, 3], [4])], [1.0, 1.0])) == 2
    assert len(samples_of([turn([1], [2, 3]), turn([1, 2], [4])], [1.0, 1.0])) == 2


def test_episodes_without_sampled_tokens_give_no_samples():
    assert samples_of([turn()], [1.0], Outcome.DEVICE_ERROR) == []
    assert samples_of([], []) == []
    assert samples_of([turn([1], []), turn([5], [2])], [1.0, 2.0])[0].token_ids == (5, 2)


@given(
    replies=st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
def test_every_layout_gives_the_same_advantage_to_the_same_tokens(replies, data):
    advantages = data.draw(st.lists(st.floats(-2, 2), min_size=len(replies), max_size=len(replies)))
    together = conversation(replies)
    alone = [turn([99 + k], reply) for k, reply in enumerate(replies)]
    seen = [
        [
            (s.token_ids[place], advantage, logprob)
            for s in samples_of(turns, advantages)
            for place, advantage, logprob in zip(
                s.sampled_positions, s.advantages, s.logprobs, strict=True
            )
        ]
        for turns in (together, alone)
    ]
    assert seen[0] == seen[1]
    assert len(samples_of(together, advantages)) == 1


def test_a_batch_is_padded_on_the_right_and_holds_every_image_once(model_adapter):
    samples = [sample(model_adapter, 0, pictures=2), sample(model_adapter, 1, reply=2)]
    batch = single_batch(samples, model_adapter)
    lengths = [len(s.token_ids) for s in samples]
    assert batch.token_ids.shape == (2, max(lengths))
    assert not batch.has_branches
    assert batch.token_ids[1, : lengths[1]].tolist() == list(samples[1].token_ids)
    assert batch.subtree_ends[1, : lengths[1]].tolist() == [lengths[1]] * lengths[1]
    assert len(batch.targets) == sum(s.num_sampled for s in samples)
    assert len(batch.pixels["image_grid_thw"]) == 3
    flat = batch.token_ids.flatten()
    torch.testing.assert_close(flat[batch.logit_positions + 1], batch.targets)
    assert flat[batch.last_positions].tolist() == [s.token_ids[-1] for s in samples]
    expected = [value for s in samples for value in s.logprobs]
    torch.testing.assert_close(batch.logprobs, torch.tensor(expected))


def test_siblings_form_one_tree_with_their_image_once(model_adapter):
    first = sample(model_adapter, 0)
    siblings = [
        type(first)(**{**fields(first), "token_ids": (*first.token_ids[:-2], 7 + k, 9)})
        for k in range(3)
    ]
    (rows,) = pack_micro_batches(
        siblings, Packing(max_tokens=1000, attention_break_even=1e9), model_adapter.image_token_id
    )
    batch = build_batch(siblings, rows, model_adapter)
    own = len(first.token_ids)
    assert batch.token_ids.shape == (1, own + 2 * 2)
    assert batch.has_branches
    assert len(batch.pixels["image_grid_thw"]) == 1
    assert "image_index" not in batch.pixels
    # all that precedes what they answer differently is asked once
    assert len(batch.logit_positions) == 18
    assert len(set(batch.logit_positions.tolist())) == 5 + 3
    assert len(set(batch.turns.tolist())) == 3
    positions = model_adapter.positions(first.token_ids, first.images)
    assert batch.positions[:, 0, :own].tolist() == positions.tolist()
    assert batch.positions[:, 0, own : own + 2].tolist() == positions[:, -2:].tolist()


def test_samples_with_different_images_never_share_a_prefix(model_adapter):
    one, other = sample(model_adapter, 0), sample(model_adapter, 0)
    other = type(one)(**{**fields(one), "images": (255 - one.images[0],)})
    (rows,) = pack_micro_batches(
        [one, other],
        Packing(max_tokens=1000, attention_break_even=1e9),
        model_adapter.image_token_id,
    )
    (tree,) = itertools.chain.from_iterable(rows)
    assert [shared for _, shared in tree.tokens] == [
        0,
        9,
    ]  # 8 tokens of text and the start of an image
    assert len(build_batch([one, other], rows, model_adapter).pixels["image_grid_thw"]) == 2


def fields(one):
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}


def test_a_sample_has_an_advantage_if_any_token_has(model_adapter):
    assert sample(model_adapter, 0, advantage=0.5).has_advantage
    assert not sample(model_adapter, 0, advantage=0.0).has_advantage


def test_uploaded_batches_keep_on_the_cpu_what_is_read_there(model_adapter):
    batch = single_batch([sample(model_adapter, 0)], model_adapter)
    found = upload(batch, torch.device("meta"))
    assert {t.device.type for t in (found.token_ids, found.weights, found.turns)} == {"meta"}
    assert found.token_ids.shape == batch.token_ids.shape
    assert {name: t.device.type for name, t in found.pixels.items()} == {
        name: "cpu" if name == "image_tokens" else "meta" for name in batch.pixels
    }
