import math

import pytest
import torch
from torch import nn

from agentrl.training.optimizer import Optimizer, warmed_up
from agentrl.training.parallel import Rank


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
    moments = optimizer.state()["b"]
    assert moments["exp_avg"].item() == pytest.approx(0.1 * 4 / 5, rel=1e-4)
    assert moments["step"].item() == 1


def test_a_gradient_that_is_not_finite_moves_nothing():
    weight = nn.Parameter(torch.ones(1))
    optimizer = Optimizer({"w": weight}, Alone())
    weight.grad = torch.tensor([math.nan])
    assert math.isnan(optimizer.step(0.1, torch.tensor(1.0))[1])
    weight.grad = torch.tensor([1.0])
    optimizer.step(0.1, torch.tensor(math.inf))
    assert weight.item() == 1.0
    assert optimizer.state()["w"]["step"].item() == 0


def test_learning_rates_of_worked_examples():
    assert [warmed_up(1.0, s, 4) for s in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert warmed_up(1.0, 0, 0) == 1.0
