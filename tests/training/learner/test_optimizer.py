import math
import re

import pytest
import torch
import transformers
from torch import nn

from agentrl.config import OptimConfig
from agentrl.policies.models import load_on_meta
from agentrl.training.learner.optimizer import Optimizer, decays, learning_rate
from agentrl.training.learner.parallel.process_group import Rank
from tests.policies import families


class Alone(Rank):
    def __init__(self):
        pass

    def sum(self, values):
        return values


def test_gradients_are_scaled_to_the_global_norm():
    weights = {"a": nn.Parameter(torch.zeros(1)), "b": nn.Parameter(torch.zeros(1))}
    optimizer = Optimizer(weights, Alone(), grad_clip=1.0)
    weights["a"].grad, weights["b"].grad = torch.tensor([3.0]), torch.tensor([4.0])
    loss, norm = optimizer.step(0.1, torch.tensor(2.0))
    assert (loss, norm) == (2.0, 5.0)
    # Adam's first step is the learning rate against the sign, whatever the scale
    assert weights["a"].item() == pytest.approx(-0.1, rel=1e-4)
    assert weights["a"].grad is None
    assert optimizer.state_tensors()["b/exp_avg"].item() == pytest.approx(0.1 * 4 / 5, rel=1e-4)
    assert optimizer.steps == {"a": 1, "b": 1}


def test_a_step_with_a_gradient_that_is_not_finite_is_skipped():
    weight = nn.Parameter(torch.ones(1))
    optimizer = Optimizer({"w": weight}, Alone())
    weight.grad = torch.tensor([math.nan])
    assert math.isnan(optimizer.step(0.1, torch.tensor(1.0))[1])
    weight.grad = torch.tensor([1.0])
    optimizer.step(0.1, torch.tensor(math.inf))
    assert weight.item() == 1.0
    assert optimizer.steps == {"w": 0}


def test_a_restored_state_without_steps_acts_like_a_new_optimizer():
    """What is saved before the first step is no other state than none."""
    moved = []
    for looked_at in (False, True):
        weight = nn.Parameter(torch.ones(3))
        optimizer = Optimizer({"w": weight}, Alone(), weight_decay=0.1)
        if looked_at:
            assert not any(tensor.any() for tensor in optimizer.state_tensors().values())
            optimizer.steps = {"w": 0}
        for k in range(3):
            weight.grad = torch.tensor([1.0, -2.0, k])
            optimizer.step(0.1, torch.tensor(0.0))
        moved.append(weight.detach().clone())
    assert torch.equal(*moved)


def test_learning_rates_of_worked_examples():
    rising = OptimConfig(lr=1.0, lr_warmup_steps=4)
    assert [learning_rate(rising, 0.0, s) for s in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert learning_rate(OptimConfig(lr=1.0), 0.7, 0) == 1.0
    line = OptimConfig(lr=1.0, lr_final_ratio=0.2)
    curve = OptimConfig(lr=1.0, lr_final_ratio=0.2, lr_schedule="cosine")
    for config, quarter in ((line, 0.8), (curve, 0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)):
        rates = [learning_rate(config, past, 9) for past in (0.0, 0.25, 0.5, 1.0)]
        assert rates == pytest.approx([1.0, quarter, 0.6, 0.2])


@pytest.mark.parametrize("family", [*families.FAMILIES, "qwen3_vl_moe"])
def test_weights_decay_that_decay_in_the_trainer_of_transformers(family, tiny_vlm, tmp_path):
    model = load_on_meta(families.build(family, tiny_vlm, tmp_path / family))
    expected = transformers.Trainer.get_decay_parameter_names(None, model)
    differ = {n for n, p in model.named_parameters() if decays(n, p)} ^ set(expected)
    # Its patterns of names miss some norms.
    assert all(re.search(r"(norm\d|ln_q)\.weight$", name) for name in differ), differ
