"""Advantages, losses and estimates equal those that verl 0.9.1 computes for the same input.

`verl.json` holds input and output of its functions in `core_algos.py`, as float64, recorded in
November 2026. Where both differ on purpose (docs/algorithms.md), the input avoids it or the test
converts: verl whitens with sqrt(var + 1e-8), and its GSPO has a ratio for each row.
"""

import json
from pathlib import Path

import pytest
import torch

from agentrl.algorithms.core.kl import ESTIMATES
from agentrl.algorithms.core.policy_loss import LossInputs, load_loss
from agentrl.algorithms.core.token_weights import token_weights
from agentrl.config import algorithm_config
from tests.algorithms.played import played, result_of

RECORDED = json.loads((Path(__file__).parent / "verl.json").read_text())


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.fixture
def episodes():
    return played(
        tensor(RECORDED["rewards"]),
        mask=torch.tensor(RECORDED["mask"]) > 0,
        group=RECORDED["group"],
        values=tensor(RECORDED["values"]),
        greedy=tensor(RECORDED["greedy"]),
    )


SETTINGS = {
    "reinforce_pp": {"discount": 0.9},
    "ppo": {"discount": 0.9, "gae_lambda": 0.8, "whiten": True},
}
"""Each token is a turn here, and so has the discount of one."""


@pytest.mark.parametrize(
    "name",
    ["grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "remax", "ppo"],
)
def test_advantages_are_those_of_verl(episodes, name):
    found = result_of(episodes, name, **SETTINGS.get(name, {}))
    expected = tensor(RECORDED["advantages"][name])
    torch.testing.assert_close(found.advantages, expected, atol=5e-6, rtol=5e-6)
    if found.returns is not None:
        targets = tensor(RECORDED["advantages"]["ppo_returns"])
        torch.testing.assert_close(found.returns, targets, atol=1e-8, rtol=0)


LOSSES = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.28, "clip_dual": 3.0},
    "gspo": {"clip_low": 0.3, "clip_high": 0.4},
    "cispo": {"clip_low": 1.0, "clip_high": 0.3},
    "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_are_those_of_verl(name):
    given, expected = RECORDED["tokens"], RECORDED["losses"][name]
    old, logprobs, advantages = (
        tensor(given[key]).flatten() for key in ("old", "logprobs", "advantages")
    )
    logprobs.requires_grad_()
    loss = load_loss(algorithm_config("grpo", loss={"name": name, **LOSSES[name]}).loss)
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=old,
        advantages=advantages,
        turn=torch.arange(2).repeat_interleave(8),  # a row is a reply
    )
    found = loss(inputs).loss.mean()
    (gradient,) = torch.autograd.grad(found, logprobs)
    assert found.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(gradient, tensor(expected["gradient"]).flatten(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ESTIMATES)
def test_kl_estimates_and_their_gradients_are_those_of_verl(name):
    given = RECORDED["kl"]
    logprobs = tensor(given["logprobs"]).requires_grad_()
    found = ESTIMATES[name](logprobs, tensor(given["reference"]))
    (gradient,) = torch.autograd.grad(found.sum(), logprobs)
    torch.testing.assert_close(found, tensor(given[name]["value"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(gradient, tensor(given[name]["gradient"]), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "aggregate", ["token_mean", "sequence_mean", "sequence_sum", "constant", "token_sum"]
)
def test_aggregates_are_those_of_verl(aggregate):
    rows = RECORDED["aggregation"]["losses"]
    # By default verl's constant is the length of a padded row.
    weights = token_weights([len(row) for row in rows], [0, 1, 2], aggregate, 5.0)
    found = sum(weight * sum(row) for weight, row in zip(weights, rows, strict=True))
    assert found == pytest.approx(RECORDED["aggregation"][aggregate], abs=1e-7)
