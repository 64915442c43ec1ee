"""The plan counts what a learner really allocates, and says what does not fit."""

import json
from pathlib import Path

import pytest
import torch

from agentrl import cli
from agentrl.config import Config, LoraConfig
from agentrl.policies.models import adapter_for, load_on_meta
from agentrl.policies.tiny import tiny_model
from agentrl.training.learner import memory_simulation, qlora
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.memory_simulation import RankMemory, simulate
from agentrl.training.learner.parallel.sharding import local_shard
from tests.policies import families
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample

CASES = {
    "compact": {"master_dtype": "bfloat16"},
    "reference": {"kl": True},
    "lora": {"lora": LoraConfig(rank=4)},
    "qlora": {"lora": LoraConfig(rank=4, base="nf4")},
}
LAYERS = {"hidden": 32, "heads": 1, "kv_heads": 1, "intermediate": 64, "vision_hidden": 32}


def settings(case: str) -> Config:
    chosen = CASES[case]
    config = Config()
    config.model.dtype = "bfloat16"
    config.model.lora = chosen.get("lora", config.model.lora)
    config.train.master_dtype = chosen.get("master_dtype", "float32")
    config.train.gradient_checkpointing = True
    config.train.micro_batch_tokens, config.rollout.max_context = 256, 128
    config.rollout.max_new_tokens = 16
    if "kl" in chosen:
        config.algorithm.kl.add_to = "loss"
    return config


def allocated(config: Config, folder: Path, rank=0, world=1, meet=None) -> dict[str, float]:
    """The bytes of what a real learner holds after its first step, by fields of `RankMemory`."""
    learner = Learner(config, folder, rank, world, meet)
    try:
        learner.score_tokens([sample(adapter_for(folder), k) for k in range(2)])
        models, found = learner._models, {}

        def size(tensors) -> int:
            return sum(local_shard(t).untyped_storage().nbytes() for t in tensors)

        state = models.optimizer.state_tensors()
        parameters = list(models.policy.module.parameters())
        found["weights"] = size(p for p in parameters if p.dtype != torch.uint8)
        tensors = models.policy.state_tensors()
        found["replicated"] = size(
            t for n, t in tensors.items() if t.dtype == torch.uint8 or qlora.is_scale(n)
        )
        found["gradients"] = size(p for p in parameters if p.requires_grad)
        found["moments"] = size(t for n, t in state.items() if "exp_avg" in n)
        found["remainders"] = size(models.policy.remainders.values())
        reference = models.reference
        found["reference"] = size(reference.module.parameters()) if reference else 0
    finally:
        learner.close()
    return found


def write_allocated(folder: Path, out: Path, rank: int) -> None:
    for case in CASES:
        found = allocated(settings(case), folder, rank, 2, f"file://{out / case}")
        (out / f"{case}-{rank}.json").write_text(json.dumps(found))


def check(found: RankMemory, expected: dict[str, float]) -> None:
    assert expected["weights"] > 0
    # Storage is padded to whole rows for all ranks.
    assert {n: getattr(found, n) for n in expected} == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("case", CASES)
def test_one_rank_holds_what_the_plan_counts(case, tiny_vlm):
    expected = allocated(settings(case), tiny_vlm)
    found = simulate(settings(case), tiny_vlm, 1)
    check(found, expected)
    assert found.activations > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_vl_moe"])
def test_models_that_mask_images_in_layers_are_counted(family, tiny_vlm, tmp_path):
    folder = families.build(family, tiny_vlm, tmp_path / family)
    config = settings("compact")
    config.model.image_size = (128, 64)
    found = simulate(config, folder, 1)
    size = 2.0 * sum(p.numel() for p in load_on_meta(folder).parameters())
    check(found, {"weights": size, "remainders": size, "gradients": size})
    assert found.activations > 0


@pytest.mark.slow
def test_two_ranks_hold_what_the_plan_counts(tiny_vlm, tmp_path):
    run_ranks(2, write_allocated, tiny_vlm, tmp_path)
    for case in CASES:
        expected = json.loads((tmp_path / f"{case}-0.json").read_text())
        check(simulate(settings(case), tiny_vlm, 2), expected)


@pytest.mark.slow
def test_layers_that_are_not_run_count_as_much_as_those_that_are(tmp_path, monkeypatch):
    folder = tiny_model.build(tmp_path / "deep", 0, layers=8, vision_depth=1, **LAYERS)
    few = simulate(settings("compact"), folder, 1)
    monkeypatch.setattr(memory_simulation, "_FEW_LAYERS", (8, 8))
    assert few == simulate(settings("compact"), folder, 1)


def test_inputs_of_layers_wait_in_cpu_memory(tiny_vlm):
    config = settings("compact")
    config.model.freeze_vision = True  # its backward pass would be the peak of so small a model
    kept = simulate(config, tiny_vlm, 1)
    config.train.activation_offload = True
    moved = simulate(config, tiny_vlm, 1)
    tokens, hidden, layers = 256, 32, 2
    assert moved.kept_on_cpu >= tokens * hidden * layers * 2
    assert moved.activations < kept.activations


def plan(capsys, *arguments: str) -> tuple[int, str]:
    code = cli.run(["plan", "number_game", *arguments])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_a_plan_lists_what_a_gpu_holds_and_what_does_not_fit(capsys):
    small = ["model.dtype=bfloat16", "train.micro_batch_tokens=1024"]
    code, shown = plan(capsys, *small, "--gpus", "2", "--gpu", "24GB")
    assert code == 0
    assert "tiny: 2 ranks and 2 engines together, 2 x 24 GB" in shown
    assert "gradients" in shown
    assert shown.splitlines()[-2] == "fits"
    code, shown = plan(capsys, *small, "--gpu", "2GB", "optim.moments=8bit")
    assert code == 1
    assert "does not fit: updates need" in shown
    assert "optim.offload_moments=true" in shown
    assert "does not fit: engines: room for 0 tokens of KV cache" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "large"], "--gpu large: must be a size such as 80GB"),
        (["model.path=no/such/folder/here"], "model.path=no/such/folder/here"),
        (["train.rank=2"], "train.rank"),
        (["train.ranks=3", "rollout.place=together"], "one GPU per rank"),
        (["optim.moments=bfloat16", "optim.betas=[0.9,0.999]"], "betas"),
    ],
)
def test_what_cannot_be_planned_is_refused(capsys, arguments, message):
    code, shown = plan(capsys, *arguments)
    assert code == 2
    assert message in shown
