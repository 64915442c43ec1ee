"""Training with bfloat16 weights and small moments, on one rank and on two."""

import json
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from agentrl import config as configuration
from agentrl.config import Config, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import adapter_for
from agentrl.training.learner import activation_offload
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import sharded_checkpoint
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample

LR = 1e-6
STEPS = 48
MORE = 3
COMPACT = ["train.master_dtype=bfloat16", "optim.moments=8bit"]


def learner_of(folder: Path, overrides: list[str], rank=0, world=1, meet=None) -> Learner:
    config = configuration.resolve(Config(), ["model.dtype=bfloat16", *overrides])
    learner = Learner(LearnerSettings.of(config), folder, rank, world, meet)
    learner.begin_offline(WarmStartConfig(betas=[0.9, 0.99]))
    return learner


def train(learner: Learner, folder: Path, steps: int) -> list[float]:
    items = [sample(adapter_for(folder), k, pictures=1 + k % 2) for k in range(4)]
    return [learner.offline_step(items, LR)["loss"] for _ in range(steps)]


def check_state(learner: Learner, saved: Path) -> None:
    """The rank's shards are those of the saved tensors, bit for bit."""
    stored, own = sharded_checkpoint.read(saved, ""), learner._models.state_tensors()
    assert {"int16", "uint8"} <= {str(t.dtype).removeprefix("torch.") for t in own.values()}
    for name, tensor in own.items():
        expected = stored[name]
        if isinstance(tensor, DTensor):
            mesh, placements = tensor.device_mesh, tensor.placements
            part = distribute_tensor(expected, mesh, placements, src_data_rank=None)
            tensor, expected = tensor.to_local(), part.to_local()
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected), name


def one_of_two(folder: Path, out: Path, rank: int) -> None:
    learner = learner_of(folder, COMPACT, rank, 2, f"file://{out / 'meet'}")
    try:
        losses = train(learner, folder, STEPS)
        learner.restore(out / "one")
        check_state(learner, out / "one")
        losses += train(learner, folder, MORE)
        learner.save_state(out / "two")
        check_state(learner, out / "two")
    finally:
        learner.close()
    if rank == 0:
        (out / "losses.json").write_text(json.dumps(losses))


def deviation(one: list[float], other: list[float]) -> float:
    """The mean difference: single losses can differ more, where many weights flip a bit at once."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_compact_training_learns_what_float32_does_on_one_rank_and_on_two(tiny_vlm, tmp_path):
    exact = learner_of(tiny_vlm, [])
    expected = train(exact, tiny_vlm, STEPS)
    exact.save_state(tmp_path / "exact")
    exact.close()
    learned = expected[0] - expected[-1]

    plain = learner_of(tiny_vlm, COMPACT[:1])
    plain._policy.remainders = {}
    plain.begin_offline(WarmStartConfig())
    rounded = train(plain, tiny_vlm, STEPS)
    plain.close()
    assert rounded[0] - rounded[-1] < learned / 5

    compact = learner_of(tiny_vlm, COMPACT)
    losses = train(compact, tiny_vlm, STEPS)
    assert deviation(losses, expected) < learned / 20
    compact.save_state(tmp_path / "one")
    check_state(compact, tmp_path / "one")
    losses += train(compact, tiny_vlm, MORE)

    run_ranks(2, one_of_two, tiny_vlm, tmp_path)
    by_two = json.loads((tmp_path / "losses.json").read_text())
    assert deviation(by_two, losses) < learned / 20
    compact.restore(tmp_path / "two")
    check_state(compact, tmp_path / "two")
    with pytest.raises(ConfigError, match=r"saved with train\.master_dtype='float32', but this"):
        compact.restore(tmp_path / "exact")
    compact.close()


def test_weights_are_copied_with_their_lower_bits(make_learner, config, model_adapter, tmp_path):
    settings = ["model.dtype=bfloat16", "train.master_dtype=bfloat16"]
    learner, other = (make_learner(configuration.resolve(config, settings)) for _ in range(2))
    learner.update([sample(model_adapter, k) for k in range(2)])
    low = learner._policy.remainders
    assert sum(bool(tensor.any()) for tensor in low.values()) > len(low) / 2
    other._policy.copy_from(learner._policy)
    assert all(torch.equal(low[n], t) for n, t in other._policy.remainders.items())
    learner.save_weights(tmp_path / "weights.safetensors")
    other.load_weights(tmp_path / "weights.safetensors")
    assert not any(tensor.any() for tensor in other._policy.remainders.values())


def test_the_policy_has_no_moments_during_a_warm_start(make_learner, config, model_adapter):
    learner = make_learner(config)
    kept = learner._models.optimizer._adam._adam.state
    num_moments = len(kept)
    assert num_moments
    learner.begin_offline(WarmStartConfig())
    learner.offline_step([sample(model_adapter, 0)], LR)
    assert not kept
    learner.end_offline()
    assert len(kept) == num_moments
    learner.update([sample(model_adapter, 0)])
    learner.begin_offline(WarmStartConfig())
    assert len(kept) == num_moments


def test_checkpointed_inputs_wait_in_cpu_memory(make_learner, config, model_adapter, monkeypatch):
    items = [sample(model_adapter, k) for k in range(2)]
    config.train.gradient_checkpointing = True
    kept = make_learner(config).update(items)
    learner, moved = make_learner(config), []
    activation_offload.enable(learner._policy.module.policy)
    hooks = torch.autograd.graph.save_on_cpu

    def counted(**settings):
        found = hooks(**settings)
        pack = found.pack_hook
        found.pack_hook = lambda tensor: (moved.append(tuple(tensor.shape)), pack(tensor))[1]
        return found

    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", counted)
    assert learner.update(items)["grad_norm"] == kept["grad_norm"]
    # One input for each of the two decoder layers and the vision layer; no weight and no mask.
    assert moved == [(30, 32), (2, 30, 32), (2, 30, 32)]
