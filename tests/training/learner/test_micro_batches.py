"""Invariant 2 of every loss: micro-batches, ranks and layouts sum to the loss of the batch."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.algorithms.core.importance_weights import importance_weights
from agentrl.algorithms.core.kl import ESTIMATES
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.config import ImportanceConfig, KLConfig, algorithm_config
from agentrl.extension_points import LOSS
from agentrl.training.batching.collate import token_targets
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.micro_batches import MicroBatcher, loss_weights
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.types import TrainingSample

WORDS = 6
LOGPROB = st.integers(-30, -1).map(lambda n: n / 10)
LOSSES = [extension.name for extension in LOSS.extensions()]
CONFIGS = {name: algorithm_config("grpo", loss=name) for name in LOSSES}
AGGREGATES = ("token_mean", "sequence_mean", "sequence_sum", "constant", "token_sum")
CORRECTIONS = ("none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
KIT = SimpleNamespace(
    image_token_id=None,
    positions=lambda ids, images: np.arange(len(ids)),
    compact_pixels=lambda pictures: {},
)
"""Of a text-only model."""


@st.composite
def samples(draw):
    """Conversations of a few replies each, some of one episode; all begin alike."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        ids, places, turns = [0], [], []
        for turn in range(draw(st.integers(1, 3))):
            reply = draw(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=4))
            places += range(len(ids), len(ids) + len(reply))
            turns += [turn] * len(reply)
            ids += [*reply, 0]

        said = st.tuples(LOGPROB, LOGPROB, LOGPROB, st.integers(-4, 4).map(lambda n: n / 2))
        columns = zip(*(draw(said) for _ in places), strict=True)
        logprobs, old, reference, advantages = columns
        found.append(
            TrainingSample(
                token_ids=tuple(ids[:-1]),
                sampled_positions=tuple(places),
                logprobs=logprobs,
                old_logprobs=old,
                reference_logprobs=reference,
                advantages=advantages,
                values=None,
                returns=None,
                bce_gradient=None,
                images=(),
                versions=(0,) * len(turns),
                turns=tuple(turns),
                episode=draw(st.integers(0, 3)),
            )
        )
    return found


def learned(items, config, packing, ranks=1):
    """The loss of a batch, and its gradient by word, added up over all passes of all ranks."""
    odds = torch.linspace(-1, 1, WORDS, dtype=torch.float64).requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    weighed = list(zip(items, loss_weights(items, config.aggregate, 7.0), strict=True))
    algorithm = load_algorithm(config)
    for number in range(ranks):
        rank = Rank(
            number=number,
            world_size=ranks,
            device=torch.device("cpu"),
            mesh=None,
            root_mesh=None,
            owner=False,
        )
        batcher = MicroBatcher(packing=packing, model_adapter=KIT, rank=rank)
        for part in batcher.shard(weighed):
            batch = part.batch
            logprobs = odds.log_softmax(-1)[batch.targets]
            inputs, turns = token_targets(part.samples), batch.turns
            old, advantages = inputs.old_logprobs.double(), inputs.advantages.double()
            token = algorithm.loss(
                LossInputs(logprobs=logprobs, old_logprobs=old, advantages=advantages, turn=turns)
            ).loss
            sampled = batch.logprobs.double()
            token = token * importance_weights(old, sampled, turns, config.importance_correction)
            reference = inputs.reference_logprobs.double()
            divergence = ESTIMATES[config.kl.estimator](logprobs, reference)
            loss = part.loss(token + 0.1 * divergence)
            loss.backward()
            total += loss.detach()
    return total.item(), odds.grad.tolist()


@pytest.mark.parametrize("loss", LOSSES)
@given(
    items=samples(),
    aggregate=st.sampled_from(AGGREGATES),
    corrected=st.sampled_from(CORRECTIONS),
    estimate=st.sampled_from(sorted(ESTIMATES)),
    most=st.integers(1, 40),
    ranks=st.integers(1, 3),
    layout=st.sampled_from([(True, True), (False, True), (False, False)]),
)
@settings(max_examples=40)
def test_splitting_a_batch_changes_neither_loss_nor_gradient(
    loss, items, aggregate, corrected, estimate, most, ranks, layout
):
    """Into micro-batches of any size, over ranks, as trees, in rows or in one row."""
    config = dataclasses.replace(
        CONFIGS[loss],
        aggregate=aggregate,
        importance_correction=ImportanceConfig(kind=corrected),
        kl=KLConfig(estimate=estimate),
    )
    whole = Packing(max_tokens=10_000, attention_break_even=np.inf, share_prefixes=False)
    split = Packing(
        max_tokens=most,
        attention_break_even=np.inf,
        share_prefixes=layout[0],
        attention_masks=layout[1],
    )
    expected, found = learned(items, config, whole), learned(items, config, split, ranks)
    assert found[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-9)
    assert found[1] == pytest.approx(expected[1], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@given(items=samples(), aggregate=st.sampled_from(AGGREGATES))
@settings(max_examples=30)
def test_one_sample_per_turn_has_the_loss_of_the_whole_conversation(loss, items, aggregate):
    config = dataclasses.replace(CONFIGS[loss], aggregate=aggregate)
    packing = Packing(max_tokens=10_000, attention_break_even=np.inf)
    # Each conversation is an episode here.
    items = [dataclasses.replace(one, episode=number) for number, one in enumerate(items)]
    turns = [part for one in items for part in by_turn(one)]
    expected, found = learned(items, config, packing), learned(turns, config, packing)
    assert found[0] == pytest.approx(expected[0], rel=1e-6, abs=1e-6)
    assert found[1] == pytest.approx(expected[1], rel=1e-6, abs=1e-6)


def by_turn(sample):
    """The same conversation, each turn with all that was said before it."""
    for turn in sorted(set(sample.turns)):
        own = [k for k, at in enumerate(sample.turns) if at == turn]
        names = (
            "sampled_positions",
            "logprobs",
            "old_logprobs",
            "reference_logprobs",
            "advantages",
            "turns",
        )
        columns = {name: tuple(getattr(sample, name)[k] for k in own) for name in names}
        end = columns["sampled_positions"][-1] + 1
        yield dataclasses.replace(sample, token_ids=sample.token_ids[:end], **columns)
