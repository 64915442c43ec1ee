"""The weight of a token belongs to the step, whatever the minibatch that its sample is in."""

import dataclasses

import pytest

from agentrl.config import Config, algorithm_config
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from tests.training.samples import sample, with_logprobs

LONG, SHORT, TURNS, TOKENS = 4, 4, 5, 2
"""Episodes of five turns beside episodes of one, of two tokens each."""


@pytest.fixture(scope="module")
def turns(model_adapter):
    """One sample for each turn, of the long episodes and of the short ones."""
    owners = [e for e in range(LONG) for _ in range(TURNS)] + list(range(LONG, LONG + SHORT))
    made = [sample(model_adapter, k, reply=TOKENS, text=3, pictures=0) for k in range(len(owners))]
    return [
        dataclasses.replace(one, episode=owner) for one, owner in zip(made, owners, strict=True)
    ]


def job(name, minibatch, **settings):
    config = Config(algorithm=algorithm_config(name, minibatch=minibatch, **settings))
    config.optim.lr = 1e-12  # the weights of the model stay what they are
    config.train.compare_engine = False
    return config


@pytest.fixture(scope="module")
def drawn(turns, tiny_vlm):
    """The samples of both layouts as if the learner had drawn them, and sizes of minibatches.

    At a ratio of 1, the loss of a token is -A.
    """
    learner = Learner(
        LearnerSettings.of(job("grpo", None, importance_correction={"kind": "token_truncate"})),
        tiny_vlm,
    )
    found = []
    for items, minibatches in ((turns, (None, 6, 5)), (whole(turns), (None, 3))):
        scores = learner.score_tokens(items)
        own = [with_logprobs(one, s.old_logprobs) for one, s in zip(items, scores, strict=True)]
        found += [(own, minibatch) for minibatch in minibatches]
    learner.close()
    return found


def with_advantages(items, long, short):
    return [
        dataclasses.replace(
            one, advantages=((long if one.episode < LONG else short),) * len(one.advantages)
        )
        for one in items
    ]


def whole(items):
    """The same tokens as one sample per episode: a conversation of all its turns."""
    found = []
    for episode in dict.fromkeys(one.episode for one in items):
        own = [one for one in items if one.episode == episode]
        starts = [sum(len(one.token_ids) for one in own[:k]) for k in range(len(own))]

        def joined(name, own=own):
            return tuple(value for one in own for value in getattr(one, name))

        found.append(
            dataclasses.replace(
                own[0],
                token_ids=joined("token_ids"),
                sampled_positions=tuple(
                    start + place
                    for start, one in zip(starts, own, strict=True)
                    for place in one.sampled_positions
                ),
                turns=tuple(k for k, one in enumerate(own) for _ in one.turns),
                **{
                    name: joined(name)
                    for name in ("logprobs", "old_logprobs", "versions", "advantages")
                },
            )
        )
    return found


MEAN = (LONG * TURNS + SHORT) * TOKENS / (LONG + SHORT)
"""Tokens of an episode, on average."""
SHARES = {
    "token_mean": LONG * TURNS / (LONG * TURNS + SHORT),
    "sequence_mean": 0.5,
    "sequence_sum": LONG * TURNS * TOKENS / (LONG + SHORT),
    "constant": LONG * TURNS / (LONG * TURNS + SHORT),
    "token_sum": LONG * TURNS * TOKENS,
}
"""Weight of all tokens of the long episodes."""
TOTALS = {"sequence_sum": MEAN, "token_sum": (LONG * TURNS + SHORT) * TOKENS}


@pytest.mark.parametrize("aggregate", SHARES)
def test_a_token_weighs_the_same_in_every_layout_and_minibatch(make_learner, drawn, aggregate):
    """Invariants 1 and 2 in the learner: the loss is minus the sum of weights times advantages."""
    config = job("grpo", None, aggregate=aggregate, aggregate_constant=MEAN)
    learner = make_learner(config)
    for items, minibatch in drawn:
        config.algorithm.minibatch = minibatch
        # A minibatch without any advantage makes no step, and would not be in the mean.
        share = learner.update(with_advantages(items, 1.0, 1e-12))
        assert share["loss"] == pytest.approx(-SHARES[aggregate], rel=1e-4), minibatch
        total = learner.update(with_advantages(items, 1.0, 1.0))
        assert total["loss"] == pytest.approx(-TOTALS.get(aggregate, 1.0), rel=1e-4), minibatch
        steps = 1 if minibatch is None else -(-len(items) // minibatch)
        assert total["optimizer_steps"] == steps


def test_the_critic_weighs_tokens_alike_in_every_minibatch(make_learner, turns):
    """Its loss is half the mean square of the returns while its values are 0."""
    items = [
        dataclasses.replace(
            one,
            values=(0.0,) * len(one.advantages),
            returns=((2.0 if one.episode < LONG else 0.0),) * len(one.advantages),
        )
        for one in turns
    ]
    # Replies of different lengths, so that minibatches have different numbers of tokens.
    shorter = {
        name: lambda one, name=name: getattr(one, name)[:1]
        for name in ("sampled_positions", "logprobs", "old_logprobs", "versions", "turns",
                     "advantages", "values", "returns")
    }  # fmt: skip
    items = [
        dataclasses.replace(one, **{name: cut(one) for name, cut in shorter.items()})
        if k % 3 == 0 else one
        for k, one in enumerate(items)
    ]  # fmt: skip
    squares = [(value - 0.0) ** 2 / 2 for one in items for value in one.returns]
    for minibatch in (None, 10):
        config = job("ppo", minibatch, critic={"lr": 1e-12, "clip": None})
        metrics = make_learner(config).update(items)
        assert metrics["value_loss"] == pytest.approx(sum(squares) / len(squares), rel=1e-4)
