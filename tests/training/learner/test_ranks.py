"""Two ranks over gloo learn what one rank learns, step after step, whatever the algorithm."""

import json
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import FSDPModule

from agentrl.child_process import free_port
from agentrl.config import Config, LoraConfig, ModelConfig, algorithm_config
from agentrl.policies.models import adapter_for
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import process_group, sharding
from agentrl.types import Outcome
from tests.training.episodes import play
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample, step_samples

STEPS = 4
FEW = 3
"""Algorithms that differ only in the loss."""
CASES = {
    "grpo": {},
    "dapo": {"kl": {"add_to": "loss", "coefficient": 0.1}, "epochs": 2, "minibatch": 3},
    "ppo": {"importance_correction": {"kind": "token_truncate"}, "entropy_coefficient": 0.01},
    "turn_ppo": {"kl": {"add_to": "reward", "coefficient": 0.1}},
    "gspo": {"epochs": 2},
    "cispo": {"epochs": 2},
    "sapo": {"epochs": 2},
    "prime": {},
    "opd": {},
}
MODELS = {
    "lora": {"lora": LoraConfig(rank=4)},
    "qlora": {"lora": LoraConfig(rank=4, base="nf4")},
    "bfloat16": {"dtype": "bfloat16"},
}
BRIEF = ["cispo", "sapo"]
QUICK = ["grpo", "lora"]
OTHERS = [name for name in (*CASES, *MODELS) if name not in QUICK]


def steps(name: str) -> int:
    return FEW if name in BRIEF else STEPS


def losses(name: str, folder: Path, rank: int = 0, world: int = 1, meet: str | None = None):
    """The losses of every step, as one of the ranks learns them."""
    plain = {"name": name, **CASES[name]} if name in CASES else {"name": "grpo"}
    config = Config(algorithm=algorithm_config(**plain), model=ModelConfig(**MODELS.get(name, {})))
    config.optim.lr, config.optim.grad_clip = 1e-4, 100.0
    config.rollout.max_new_tokens, config.train.micro_batch_tokens = 8, 110
    model_adapter = adapter_for(folder)
    ends = [Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.TERMINATED]
    groups = [
        [play(model_adapter, seed, m, end) for m, end in enumerate(ends)] for seed in range(2)
    ]
    learner = Learner(LearnerSettings.of(config), folder, rank, world, meet)
    rows = []
    try:
        for step in range(steps(name)):
            built = step_samples(
                groups, config, learner.score_tokens, version=step, seed=step, kl_coefficient=0.1
            )
            metrics = learner.update(built.samples)
            rows.append([metrics[k] for k in ("loss", "grad_norm", "entropy")])
            rows[-1] += [
                metrics[k] for k in ("value_loss", "implicit_grad_norm", "kl") if k in metrics
            ]
        check_weights_one_by_one(learner)
    finally:
        learner.close()
    return rows


def check_weights_one_by_one(learner: Learner) -> None:
    """On every rank they are those that are written as a whole, which it takes all ranks for."""
    expected, found = learner.weights(), dict(learner._policy.iter_full_weights())
    assert found.keys() == expected.keys() == learner.shapes().keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
        assert learner.shapes()[name] == tuple(tensor.shape), name


def one_of(world: int, folder: Path, out: Path, names: list[str], rank: int) -> None:
    for name in names:
        rows = losses(name, folder, rank, world, f"file://{out / name}")
        if rank == 0:
            (out / f"{name}.json").write_text(json.dumps(rows))


def by_ranks(world: int, folder: Path, out: Path, names: list[str]) -> Path:
    """Where several processes have left their losses."""
    run_ranks(world, one_of, world, folder, out, names)
    return out


@pytest.fixture(scope="module")
def quick(tiny_vlm, tmp_path_factory):
    return by_ranks(2, tiny_vlm, tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def others(tiny_vlm, tmp_path_factory):
    return by_ranks(2, tiny_vlm, tmp_path_factory.mktemp("others"), OTHERS)


def check(name: str, out: Path, folder: Path) -> None:
    found = json.loads((out / f"{name}.json").read_text())
    expected = losses(name, folder)
    assert len(found) == steps(name)
    for step, (one, other) in enumerate(zip(expected, found, strict=True)):
        # In bfloat16 a step that rounds otherwise is the least that can differ.
        rel, abs = (0.05, 5e-3) if name == "bfloat16" else (1e-4, 1e-6)
        assert other == pytest.approx(one, rel=rel, abs=abs), f"step {step}"


def join_on_loopback(out: Path, port: int, rank: int) -> None:
    joined = process_group.join(rank, 2, f"tcp://127.0.0.1:{port}")
    own = psutil.Process().net_connections()
    addresses = [one.laddr.ip for one in own if one.status == "LISTEN"]
    (out / f"{rank}.json").write_text(json.dumps(addresses))
    joined.leave()


@pytest.mark.slow
def test_ranks_of_one_machine_listen_on_loopback_only(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    port = free_port()
    run_ranks(2, join_on_loopback, tmp_path, port)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert {address.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_learn_what_one_does(name, quick, tiny_vlm):
    check(name, quick, tiny_vlm)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OTHERS)
def test_two_ranks_learn_what_one_does_with_every_other_loss(name, others, tiny_vlm):
    check(name, others, tiny_vlm)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_ranks_learn_what_one_does(tiny_vlm, tmp_path):
    check("dapo", by_ranks(4, tiny_vlm, tmp_path, ["dapo"]), tiny_vlm)


UNITS = {
    "full": {"dtype": "bfloat16"},
    "frozen": {"freeze_vision": True},
    "lora": {"lora": LoraConfig(rank=4)},
}


def learn_in_units(folder: Path, out: Path, world: int, rank: int) -> None:
    """Some steps in which one of two ranks has all images; rank 0 writes what was learned."""
    sharding._LAYERWISE = 0  # as in a large model
    model_adapter = adapter_for(folder)
    items = [sample(model_adapter, k, pictures=2 * (k % 2), text=40 - 30 * (k % 2)) for k in (0, 1)]
    for name, settings in UNITS.items():
        config = Config(model=ModelConfig(**settings))
        config.optim.lr, config.optim.grad_clip = 1e-3, 100.0
        config.train.gradient_checkpointing = True
        learner = Learner(
            LearnerSettings.of(config), folder, rank, world, f"file://{out / name}.{world}"
        )
        units = [m for m in learner._policy.module.modules() if isinstance(m, FSDPModule)]
        assert len(units) == 2 + 3  # layers, and vision, embedding, all of it
        kinds = {type(unit).__name__.removeprefix("FSDP") for unit in units}
        assert {"Embedding", "LogprobModel", "Qwen2_5_VisionTransformerPretrainedModel"} < kinds
        norms = [learner.update(items, step)["grad_norm"] for step in range(3)]
        learner.save_weights(out / f"{name}.{world}.safetensors")
        if rank == 0:
            (out / f"{name}.{world}.json").write_text(json.dumps(norms))
        learner.close()


def compare_units(folder: Path, out: Path, world: int) -> None:
    run_ranks(1, learn_in_units, folder, out, 1)
    run_ranks(world, learn_in_units, folder, out, world)
    for name in UNITS:
        one, more = (json.loads((out / f"{name}.{n}.json").read_text()) for n in (1, world))
        assert more == pytest.approx(one, rel=0.05 if name == "full" else 1e-3), name
        one, more = (load_file(out / f"{name}.{n}.safetensors") for n in (1, world))
        for weight, value in one.items():
            torch.testing.assert_close(more[weight], value, atol=5e-3, rtol=0.02)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_with_and_without_images_gather_vision_and_embedding_together(tiny_vlm, tmp_path):
    compare_units(tiny_vlm, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_ranks_gather_vision_and_embedding_together(tiny_vlm, tmp_path):
    compare_units(tiny_vlm, tmp_path, 4)
