"""AdamW on bfloat16 weights, and on moments that take less memory."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.training.learner import adamw
from agentrl.training.learner.adamw import join, split
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.parallel.sharding import state_dtensor

LR = 1e-6
STEPS = 60


class Alone(Rank):
    def __init__(self):
        pass

    def sum(self, values):
        return values


def full_size(name, weight, remainders):
    return join(weight.detach(), remainders[name]) if name in remainders else weight.detach()


def losses(moments="float32", dtype=torch.float32, compensated=True, steps=STEPS, **settings):
    """Losses of a regression whose weights are near 1, where bfloat16 has steps of 0.008."""
    torch.manual_seed(0)
    inputs, goal = torch.randn(256, 300), torch.randn(300, 8) * 1e-4
    weights = {
        "matrix": nn.Parameter(torch.ones(8, 300, dtype=dtype)),
        "bias": nn.Parameter(torch.zeros(8, dtype=dtype)),
        "unused": nn.Parameter(torch.ones(3, dtype=dtype)),
    }
    low = {n: torch.zeros_like(w, dtype=torch.int16) for n, w in weights.items()}
    remainders = low if compensated and dtype == torch.bfloat16 else {}
    optimizer = Optimizer(weights, Alone(), remainders, moments=moments, **settings)
    found = []
    for _ in range(steps):
        # The loss is measured on the exact weights; gradients have the precision of the weights.
        matrix = full_size("matrix", weights["matrix"], remainders).float().requires_grad_()
        bias = full_size("bias", weights["bias"], remainders).float().requires_grad_()
        loss = (inputs @ (matrix - 1).T + bias - inputs @ goal).square().mean()
        loss.backward()
        weights["matrix"].grad, weights["bias"].grad = matrix.grad.to(dtype), bias.grad.to(dtype)
        optimizer.step(LR, loss.detach())
        found.append(loss.item())
    return found, weights, optimizer


def test_a_weight_and_its_remainder_are_exactly_a_float32():
    torch.manual_seed(0)
    ties = torch.tensor([0x3F808000, 0x3F818000, -0x407F8000, 0, 1, 0x7FFF, 0x8000])
    full = torch.cat([torch.randn(1000) ** 9, ties.to(torch.int32).view(torch.float32)])
    weight, remainder = torch.empty(len(full), dtype=torch.bfloat16), torch.empty(len(full))
    remainder = remainder.to(torch.int16)
    split(full, weight, remainder)
    assert torch.equal(join(weight, remainder), full)
    assert torch.equal(weight[:1000], full[:1000].bfloat16())


def test_bfloat16_weights_learn_at_a_small_rate_as_float32_ones_do():
    expected, exact, _ = losses()
    assert expected[-1] < 0.7 * expected[0]
    rounded, weights, _ = losses(dtype=torch.bfloat16, compensated=False)
    assert torch.equal(weights["matrix"], torch.ones_like(weights["matrix"]))
    assert rounded[-1] > 0.99 * rounded[0]
    found, weights, optimizer = losses(dtype=torch.bfloat16)
    assert found == pytest.approx(expected, rel=1e-3)
    low = optimizer.state_tensors()["matrix/remainder"]
    assert join(weights["matrix"].detach(), low) == pytest.approx(
        exact["matrix"].detach(), abs=STEPS * LR / 100
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moments", ["bfloat16", "8bit"])
def test_smaller_moments_learn_what_float32_ones_do(moments, dtype):
    expected, _, _ = losses()
    found, weights, optimizer = losses(moments, dtype)
    assert found == pytest.approx(expected, rel=0.03)
    kept = optimizer.state_tensors()
    size = sum(t.nbytes for n, t in kept.items() if n.startswith("matrix/exp"))
    # Rows of 300 are padded to two blocks of 256, each with a scale.
    assert size == 8 * (300 * 2 * 2 if moments == "bfloat16" else 2 * (512 + 2 * 4))
    assert kept["bias/exp_avg"].dtype == (
        torch.bfloat16 if moments == "bfloat16" else torch.float32
    )
    assert torch.equal(weights["unused"], torch.ones_like(weights["unused"]))
    assert optimizer.steps == {"matrix": STEPS, "bias": STEPS, "unused": 0}


def test_pieces_of_a_weight_are_stepped_like_the_whole(monkeypatch):
    whole = losses("8bit", torch.bfloat16, steps=5, weight_decay=0.1, grad_clip=1e-6)
    monkeypatch.setattr(adamw, "_PIECE_ON_CPU", 700)
    parts = losses("8bit", torch.bfloat16, steps=5, weight_decay=0.1, grad_clip=1e-6)
    assert parts[0] == whole[0]
    for name, tensor in parts[2].state_tensors().items():
        assert torch.equal(tensor, whole[2].state_tensors()[name]), name


def test_exact_parts_are_stepped_as_torch_does():
    """Compensated weights take torch's steps, gradient clipping and weight decay included."""
    made = []
    for dtype in (torch.float32, torch.bfloat16):
        weight = nn.Parameter(torch.linspace(-1, 1, 64).view(8, 8).bfloat16().to(dtype))
        low = {"w": torch.zeros(8, 8, dtype=torch.int16)} if dtype == torch.bfloat16 else {}
        optimizer = Optimizer({"w": weight}, Alone(), low, weight_decay=0.1)
        for k in range(5):
            weight.grad = torch.linspace(k, 4, 64).view(8, 8).bfloat16().to(dtype)
            optimizer.step(1e-3, torch.tensor(0.0))
        made.append(full_size("w", weight, low))
        made.append(optimizer.state_tensors()["w/exp_avg_sq"])
    assert made[2] == pytest.approx(made[0], rel=1e-6, abs=1e-9)
    assert made[3] == pytest.approx(made[1], rel=1e-6)


@pytest.mark.parametrize("moments", ["float32", "bfloat16", "8bit"])
def test_only_matrices_decay(moments):
    shapes = {"up.weight": (4, 256), "up.bias": (4,), "norm.weight": (256,), "experts.bias": (2, 4)}
    weights = {name: nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()}
    optimizer = Optimizer(weights, Alone(), moments=moments, weight_decay=0.5)
    for weight in weights.values():
        weight.grad = torch.zeros_like(weight)
    optimizer.step(0.1, torch.tensor(0.0))
    found = {name: weight.detach().unique().tolist() for name, weight in weights.items()}
    assert found.pop("up.weight") == pytest.approx([0.95])
    assert set(map(tuple, found.values())) == {(1.0,)}


@pytest.mark.parametrize("moments", ["float32", "bfloat16", "8bit"])
def test_moments_are_allocated_at_once_and_released_before_the_first_step(moments):
    weight = nn.Parameter(torch.ones(4, 256))
    optimizer = Optimizer({"w": weight}, Alone(), moments=moments)
    kept = optimizer._adam._adam.state if moments == "float32" else optimizer._adam._state
    assert len(kept) == 1
    optimizer.release()
    assert not kept
    optimizer.allocate()
    assert len(kept) == 1
    weight.grad = torch.ones(4, 256)
    optimizer.step(LR, torch.tensor(0.0))
    with pytest.raises(AssertionError, match="would be lost"):
        optimizer.release()


def test_state_in_cpu_memory_is_not_moved_to_the_mesh_of_a_gpu():
    """As with `train.offload`: what is restored into a copy would be lost."""
    mesh = DeviceMesh("cuda", [0], _init_backend=False, _rank=0)
    shard = torch.ones(2, 3)
    meta = TensorMeta(torch.Size((2, 3)), (3, 1), torch.float32)
    like = DTensor(shard, DTensorSpec(mesh, (Shard(0),), meta), requires_grad=False)
    moment, codes = torch.zeros(2, 3), torch.zeros(2, 256, dtype=torch.uint8)
    assert state_dtensor(moment, like).to_local().data_ptr() == moment.data_ptr()
    assert state_dtensor(codes, like).shape == (2, 256)
    mesh = DeviceMesh("cuda", [0, 1], _init_backend=False, _rank=0)
    meta = TensorMeta(torch.Size((2, 6)), (6, 1), torch.float32)
    columns = DTensor(shard, DTensorSpec(mesh, (Shard(1),), meta), requires_grad=False)
    assert state_dtensor(codes, columns).shape == (2, 512)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.master_dtype=bfloat16"], "requires model.dtype=bfloat16"),
        (["train.activation_offload=true"], "requires train.gradient_checkpointing=true"),
        (["optim.moments=bfloat16", "optim.betas=[0.9,0.999]"], r"optim.betas=\[0.9, 0.999\]"),
        (
            ["optim.moments=bfloat16", "warm_start={betas: [0.9, 0.999]}"],
            r"warm_start.betas=\[0.9, 0.999\]: the second must be at most 0.995",
        ),
    ],
)
def test_settings_that_do_not_work_together_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        configuration.resolve(Config(), overrides)


def test_a_bfloat16_moment_decays_at_the_largest_rate_that_is_allowed():
    """One step at a second beta of 0.995 is more than half the last bit, whatever the value."""
    values = torch.linspace(1, 2, 1000).bfloat16()
    assert (values.float() * 0.995).bfloat16().lt(values).all()
    assert not (values.float() * 0.999).bfloat16().lt(values).all()
