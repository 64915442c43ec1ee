"""Advantages, losses and estimates equal those that verl 0.9.1 and TRL compute for the same input.

`verl.json` holds input and output of its functions in `core_algos.py`, as float64, recorded in
November 2026. Where both differ on purpose (docs/algorithms.md), the input avoids it or the test
converts: verl whitens with sqrt(var + 1e-8), in GDPO over tokens (here one for each episode), and
its GSPO has a ratio for each row.
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from agentrl.algorithms.core.kl import ESTIMATES
from agentrl.algorithms.core.loss_aggregation import token_weights
from agentrl.algorithms.core.policy_loss import LossInputs, load_loss
from agentrl.config import algorithm_config
from tests.algorithms.played import played, result_of
from tests.policies import families

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


def gdpo_of(rewards, weights, group):
    """[E] GDPO's advantages of episodes with one token; None is a function that does not apply."""
    found = result_of(
        played(
            torch.zeros(len(rewards), 1).double(),
            group=group,
            function_rewards=tensor([[0.0 if r is None else r for r in row] for row in rewards]),
            function_weights=tensor(
                [
                    [0.0 if r is None else w for r, w in zip(row, weights, strict=True)]
                    for row in rewards
                ]
            ),
        ),
        "gdpo",
    )
    return found.advantages[:, 0]


def test_gdpo_advantages_are_those_of_verl():
    given = RECORDED["gdpo"]
    found = gdpo_of(given["rewards"], given["weights"], given["group"])
    expected = tensor(given["advantages"])[:, 0]
    torch.testing.assert_close(found, expected, atol=5e-6, rtol=5e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of TRL, about versions and experiments
def test_gdpo_advantages_are_those_of_trl(tiny_vlm, tmp_path):
    """Of its trainer, which scores replies of one token; some functions do not apply."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoTokenizer

    folder = families.build("text", tiny_vlm, tmp_path / "model")
    rewards = [[0, 50], [100, 50], [100, 20], [0, 300], [0, None], [100, 40]]
    weights = [1.0, 0.5]
    rows = [{"prompt": [{"role": "user", "content": word}]} for word in ("yes", "no")]
    trainer = trl.GRPOTrainer(
        model=str(folder),
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=[
            lambda completions, **_: [row[0] for row in rewards],
            lambda completions, **_: [row[1] for row in rewards],
        ],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "out"), use_cpu=True, bf16=False, report_to="none",
            gradient_checkpointing=False, per_device_train_batch_size=6, num_generations=3,
            max_completion_length=1, reward_weights=weights,
            multi_objective_aggregation="normalize_then_sum",
        ),
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    theirs = trainer._generate_and_score_completions([row for row in rows for _ in range(3)])
    found = gdpo_of(rewards, weights, [0, 0, 0, 1, 1, 1])
    # It adds 1e-4 to standard deviations of about 1.
    torch.testing.assert_close(found.float(), theirs["advantages"], rtol=3e-4, atol=3e-4)


def opd_of(own, engine, teacher):
    """The gradient of OPD's loss, summed over the tokens of a reply, without a reward.

    Args:
        own: [N] log-probabilities under the policy before its first update.
        engine: [N] those that the engine reported.
        teacher: [N] those under the teacher.
    """
    logprobs = own.clone().requires_grad_()
    advantages = result_of(
        played(torch.zeros(1, len(own)).double(), teacher=(teacher - own)[None]), "opd"
    ).advantages[0]
    loss = load_loss(algorithm_config("opd").loss)
    turn = torch.zeros(len(own), dtype=torch.long)
    inputs = LossInputs(logprobs=logprobs, old_logprobs=engine, advantages=advantages, turn=turn)
    (gradient,) = torch.autograd.grad(loss(inputs).loss.sum(), logprobs)
    return gradient


def test_opd_has_the_gradient_of_prime_rl():
    """As it is published: -(teacher - trainer) exp(trainer - inference), the first detached.

    Its term 1e-3 (trainer - inference)^2 is left out.
    """
    engine = tensor([-1.0, -0.3, -2.0, -0.7])
    teacher = tensor([-0.2, -1.5, -2.5, -0.1])
    own = engine + tensor([0.05, -0.1, 0.0, 0.1])
    trainer = own.clone().requires_grad_()
    loss = -((teacher - trainer).detach() * (trainer - engine).exp()).sum()
    (expected,) = torch.autograd.grad(loss, trainer)
    torch.testing.assert_close(opd_of(own, engine, teacher), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of TRL, about versions and experiments
def test_opd_has_the_gradients_of_trl():
    """On sampled tokens as in IW-OPD with gamma 0, and on average as over the whole vocabulary."""
    pytest.importorskip("trl")
    from trl.experimental.iw_opd import IWOPDTrainer

    seed = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 1, 4, 6, generator=seed, dtype=torch.float64)
    logits.requires_grad_()
    tokens = torch.tensor([[0, 3, 5, 3]])
    table, teacher = logits.log_softmax(-1), other.log_softmax(-1)
    trainer = SimpleNamespace(
        temperature=1.0, iw_opd_gamma=0.0, iw_opd_epsilon=1e-8,
        model=SimpleNamespace(training=True), _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    theirs = IWOPDTrainer._compute_iw_opd_loss(
        trainer, logits, tokens, tokens, teacher.gather(-1, tokens[..., None])[..., 0]
    )
    (expected,) = torch.autograd.grad(theirs * tokens.numel(), logits)
    old = table.detach()

    def slope(sampled, weight=1.0):
        """Our gradient with respect to the logits, for one token at each position."""
        chosen = [x.gather(-1, sampled[..., None])[0, :, 0] for x in (old, teacher)]
        own = opd_of(chosen[0], chosen[0], chosen[1]) * weight
        picked = table.gather(-1, sampled[..., None])[0, :, 0]
        return torch.autograd.grad((own * picked).sum(), logits, retain_graph=True)[0]

    torch.testing.assert_close(slope(tokens), expected)
    everywhere = [torch.full((1, 4), token) for token in range(6)]
    mean = sum(slope(one, old[0, :, one[0, 0]].exp()) for one in everywhere)
    divergence = IWOPDTrainer.generalized_jsd_loss(logits, other, beta=1.0, reduction="sum")
    (expected,) = torch.autograd.grad(divergence, logits)
    torch.testing.assert_close(mean, expected)


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
