"""Losses and divergences on worked examples, and what holds for all of them."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.core import kl
from agentrl.algorithms.core.importance_weights import importance_weights
from agentrl.algorithms.core.kl import ESTIMATES, MAX_K3, k3
from agentrl.algorithms.core.loss_aggregation import token_weights
from agentrl.algorithms.core.policy_loss import LossInputs, load_loss
from agentrl.algorithms.core.statistics import turn_means
from agentrl.config import ImportanceConfig, algorithm_config
from agentrl.extension_points import LOSS

LOSSES = [extension.name for extension in LOSS.extensions()]
TURN = torch.zeros(5, dtype=torch.long)
CONFIGS = {name: algorithm_config("grpo", loss=name).loss for name in LOSSES}
ANY = st.sampled_from(LOSSES)


def loss_of(name, logprobs, old, advantages, turn=None, **settings):
    loss = load_loss(dataclasses.replace(CONFIGS[name], **settings))
    turn = torch.arange(len(logprobs)) if turn is None else turn
    return loss(LossInputs(logprobs=logprobs, old_logprobs=old, advantages=advantages, turn=turn))


def test_ppo_of_worked_examples():
    ratios = torch.tensor([1.5, 0.5, 1.5, 0.5, 10.0])
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    result = loss_of("ppo", ratios.log(), torch.zeros(5), advantages, clip_high=0.28)
    # bounded above at 1.28, free below, free above, bounded below at 0.8, dual clip at 3
    torch.testing.assert_close(result.loss, torch.tensor([-1.28, -0.5, 1.5, 0.8, 3.0]))
    assert result.clipped.tolist() == [True, False, False, True, True]
    free = loss_of("ppo", ratios.log(), torch.zeros(5), advantages, clip_high=0.28, clip_dual=None)
    torch.testing.assert_close(free.loss, torch.tensor([-1.28, -0.5, 1.5, 0.8, 10.0]))
    assert free.clipped.tolist() == [True, False, False, True, False]


def test_clipped_tokens_receive_no_gradient():
    logprobs = torch.tensor([1.5, 0.5, 10.0]).log().requires_grad_()
    advantages = torch.tensor([1.0, -1.0, -1.0])
    loss_of("ppo", logprobs, torch.zeros(3), advantages).loss.sum().backward()
    assert logprobs.grad.tolist() == [0.0, 0.0, 0.0]


def test_gspo_has_one_ratio_per_reply():
    # two replies: log-ratios 1e-4, 3e-4 of mean 2e-4, and 1e-3, 3e-3 of mean 2e-3
    logprobs = torch.tensor([1e-4, 3e-4, 1e-3, 3e-3], dtype=torch.float64).requires_grad_()
    turn = torch.tensor([0, 0, 1, 1])
    ones = torch.ones(4).double()
    result = loss_of("gspo", logprobs, 0 * ones, ones, turn)
    expected = [-math.exp(2e-4)] * 2 + [-(1 + 4e-4)] * 2
    assert result.loss.tolist() == pytest.approx(expected, abs=1e-9)
    assert result.clipped.tolist() == [False, False, True, True]
    result.loss.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-math.exp(2e-4)] * 2 + [0, 0], abs=1e-9)


def test_log_ratios_are_bounded_after_the_mean_of_a_reply():
    """One extreme token must count as much as it is, not as 20."""
    old = torch.tensor([0.0, 0.0, 0.0]).double()
    logprobs = torch.tensor([-60.0, 30.0, 29.4]).double()  # the mean is -0.2
    found = loss_of("gspo", logprobs, old, torch.full((3,), -1.0).double(), 0 * TURN[:3])
    # below the clipping range: bounded at 1 - 3e-4
    assert found.loss.tolist() == pytest.approx([1 - 3e-4] * 3)
    up = loss_of("gspo", -logprobs, old, torch.full((3,), -1.0).double(), 0 * TURN[:3])
    assert up.loss.tolist() == pytest.approx([math.exp(0.2)] * 3)


def test_cispo_clips_the_ratio_and_keeps_the_gradient():
    ratios = torch.tensor([0.5, 8.0])
    logprobs = (ratios.log() - 1).requires_grad_()
    result = loss_of("cispo", logprobs, torch.full((2,), -1.0), torch.tensor([1.0, -2.0]))
    assert result.clipped.tolist() == [False, True]
    result.loss.sum().backward()
    # the weights are 0.5 and 1 + 4
    assert logprobs.grad.tolist() == pytest.approx([-0.5, 10.0])


def test_sapo_of_worked_examples():
    ratios = torch.tensor([1.0, 3.0, 3.0])
    result = loss_of("sapo", ratios.log(), torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]))
    up, down = 1 / (1 + math.exp(-2.0)), 1 / (1 + math.exp(-2.1))
    assert result.loss.tolist() == pytest.approx([-2.0, -4 * up, 4 / 1.05 * down])


@pytest.mark.parametrize("name", LOSSES)
def test_the_first_step_is_the_plain_policy_gradient(name):
    logprobs = torch.tensor([-1.0, -2.0, -0.3], requires_grad=True)
    advantages = torch.tensor([0.7, -0.3, 0.0])
    loss_of(name, logprobs, logprobs.detach(), advantages).loss.sum().backward()
    torch.testing.assert_close(logprobs.grad, -advantages)


@given(difference=st.floats(-1e4, 1e4), advantages=st.floats(-10, 10), name=ANY)
def test_losses_stay_finite_for_any_ratio(difference, advantages, name):
    logprobs = torch.tensor([difference], requires_grad=True)
    loss = loss_of(name, logprobs, torch.zeros(1), torch.tensor([advantages])).loss
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(logprobs.grad).all()


@given(
    rows=st.lists(
        st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.floats(-2, 2), st.integers(0, 2)),
        min_size=1, max_size=8,
    ),
    name=ANY,
    data=st.data(),
)  # fmt: skip
def test_losses_do_not_depend_on_the_order_of_tokens(rows, name, data):
    order = data.draw(st.permutations(range(len(rows))))
    logprobs, old, advantages = (torch.tensor([r[i] for r in rows]).double() for i in range(3))
    turn = torch.tensor([row[3] for row in rows])
    straight = loss_of(name, logprobs, old, advantages, turn)
    mixed = loss_of(name, logprobs[order], old[order], advantages[order], turn[order])
    torch.testing.assert_close(mixed.loss, straight.loss[order])


def test_divergences_of_a_worked_example():
    logp = torch.tensor([math.log(0.5)], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([math.log(0.25)], dtype=torch.float64)
    d = math.log(2)
    expected = {  # value, gradient
        "k1": (d, 1.0),
        "abs": (d, 1.0),
        "k2": (d * d / 2, d),
        "k3": (0.5 + d - 1, 0.5),
        "k3+": (0.5 + d - 1, d),
    }
    assert expected.keys() == ESTIMATES.keys()
    for name, (value, gradient) in expected.items():
        found = ESTIMATES[name](logp, reference)
        (slope,) = torch.autograd.grad(found.sum(), logp)
        assert (found.item(), slope.item()) == (pytest.approx(value), pytest.approx(gradient)), name


@given(difference=st.floats(-1e4, 1e4))
def test_k3_is_never_negative_and_bounded(difference):
    assert 0 <= k3(torch.tensor([difference]), torch.zeros(1)).item() <= MAX_K3


@given(st.lists(st.tuples(st.floats(0.5, 1), st.floats(0.5, 1)), min_size=2, max_size=6))
def test_k1_and_k3_are_unbiased(pairs):
    """Over all outcomes of two distributions, k1 and k3 are the divergence itself."""
    p, q = (torch.tensor(column).double() for column in zip(*pairs, strict=True))
    p, q = p / p.sum(), q / q.sum()
    exact = (p * (p / q).log()).sum()
    for name in ("k1", "k3"):
        torch.testing.assert_close((p * ESTIMATES[name](p.log(), q.log())).sum(), exact)


def test_the_adaptive_kl_coefficient_moves_toward_its_target():
    assert kl.adapt_coefficient(0.1, 0.02, 0.01, 10.0) == pytest.approx(0.1 * 1.02)
    assert kl.adapt_coefficient(0.1, 0.0, 0.01, 10.0) == pytest.approx(0.1 * 0.98)
    assert kl.adapt_coefficient(0.1, 0.0101, 0.01, 1.0) == pytest.approx(0.1 * 1.01)


def test_aggregation_of_worked_examples():
    counts, episodes = [1, 3, 0, 2], [0, 1, 2, 1]  # the second episode lies in two samples
    assert token_weights(counts, episodes, "token_mean") == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6])
    assert token_weights(counts, episodes, "sequence_mean") == [1 / 2, 1 / 10, 0, 1 / 10]
    assert token_weights(counts, episodes, "sequence_sum") == [1 / 2, 1 / 2, 0, 1 / 2]
    assert token_weights(counts, episodes, "constant", 4.0) == [1 / 8, 1 / 8, 0, 1 / 8]
    assert token_weights(counts, episodes, "token_sum") == [1, 1, 0, 1]


@given(
    counts=st.lists(st.integers(0, 50), min_size=1).filter(any),
    aggregate=st.sampled_from(["token_mean", "sequence_mean"]),
    data=st.data(),
)
def test_the_weights_of_means_sum_to_one(counts, aggregate, data):
    episodes = data.draw(st.lists(st.integers(0, 5), min_size=len(counts), max_size=len(counts)))
    weights = token_weights(counts, episodes, aggregate)
    assert sum(w * n for w, n in zip(weights, counts, strict=True)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", [1, 1, 1, 1]),
        ("token_truncate", [0.25, 2.0, 2.0, 1.0]),
        ("token_mask", [0.0, 2.0, 0.0, 1.0]),
        # products over the replies: 0.5 and 4
        ("sequence_truncate", [0.5, 0.5, 2.0, 2.0]),
        ("sequence_mask", [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_corrections_of_worked_examples(kind, expected):
    ratios = torch.tensor([0.25, 2.0, 4.0, 1.0], dtype=torch.float64)
    config = ImportanceConfig(kind=kind, low=0.5, high=2.0)
    turn = torch.tensor([0, 0, 1, 1])
    found = importance_weights(ratios.log(), torch.zeros(4).double(), turn, config)
    assert found.tolist() == pytest.approx(expected)


def test_log_ratios_are_bounded_after_the_sum_over_a_reply():
    old = torch.tensor([-60.0, 30.0, 30.5]).double()
    for kind in ("sequence_truncate", "sequence_mask"):
        config = ImportanceConfig(kind=kind, low=0.5, high=2.0)
        found = importance_weights(old, 0 * old, 0 * TURN[:3], config)
        assert found.tolist() == pytest.approx([math.exp(0.5)] * 3)
    far = importance_weights(10 * old.abs(), 0 * old, 0 * TURN[:3], config)
    assert far.tolist() == [0.0, 0.0, 0.0]  # finite before it is masked


def test_importance_weights_have_no_gradient():
    old = torch.zeros(2, requires_grad=True)
    config = ImportanceConfig(kind="token_truncate")
    found = importance_weights(old, torch.zeros(2), torch.zeros(2).long(), config)
    assert not found.requires_grad


def test_means_over_a_turn_are_those_of_its_own_tokens():
    assert turn_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1])).tolist() == [
        2, 2, 5,
    ]  # fmt: skip
