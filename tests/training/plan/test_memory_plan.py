"""The plan counts what a learner really allocates, and says what does not fit."""

import json
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from agentrl import accelerators, cli
from agentrl import config as configuration
from agentrl.accelerators import MachineAccelerators
from agentrl.config import Config, LoraConfig
from agentrl.policies import tiny_model
from agentrl.policies.models import adapter_for, load_on_meta
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.learner import four_bit_weights
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import process_group
from agentrl.training.learner.parallel.process_group import Parallelism
from agentrl.training.learner.parallel.sharding import local_shard
from agentrl.training.plan import memory_plan, memory_simulation
from agentrl.training.plan.host_memory_plan import HostMemoryPlanner
from agentrl.training.plan.learner_state_size import LearnerStateSize
from agentrl.training.plan.memory_simulation import MemorySimulation, RankMemory
from agentrl.training.plan.model_config_folder import config_folder
from tests.policies import families
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample

CASES = {
    "compact": {"master_dtype": "bfloat16"},
    "reference": {"kl": True},
    "lora": {"lora": LoraConfig(rank=4)},
    "qlora": {"lora": LoraConfig(rank=4, base="nf4")},
}
SHARDED = {
    **{case: ("tiny_vlm", chosen) for case, chosen in CASES.items()},
    "columns": ("tiny", {"sequence_parallel": 2}),
    "replicas": ("tiny", {"replicas": 2}),
}
DIVIDED = {
    "tensors with 8-bit moments": (2, "tiny", {"tensor_parallel": 2, "moments": "8bit"}),
    "experts": (2, "qwen3_moe", {"expert_parallel": 2}),
    "replicas of tensors": (4, "qwen3_vl", {"replicas": 2, "tensor_parallel": 2}),
    "experts of two groups": (4, "qwen3_vl_moe", {"expert_parallel": 4, "tensor_parallel": 2}),
}
WORK = ("gathered", "reduced", "activations")


def settings(chosen: dict[str, Any]) -> Config:
    config = Config()
    config.model.dtype, config.model.image_size = "bfloat16", (128, 64)
    config.train.gradient_checkpointing = True
    # So many that the peak is not where gradients are summed: gloo copies them.
    config.train.micro_batch_tokens, config.rollout.max_context = 1024, 128
    config.rollout.max_new_tokens = 16
    for key, value in chosen.items():
        if key == "kl":
            config.algorithm.kl.add_to = "loss"
            continue
        section = next(s for s in (config.model, config.optim, config.train) if hasattr(s, key))
        setattr(section, key, value)
    return config


class EvenRouting(TorchDispatchMode):
    """Routers give all experts as many tokens, as in the simulation, on any processor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind is DTensor for kind in types):
            return NotImplemented
        found = func(*args, **(kwargs or {}))
        return (
            memory_simulation._routed(found, *args)
            if func is torch.ops.aten.topk.default
            else found
        )


def allocated(config: Config, folder: Path, rank=0, world=1, meet=None) -> dict[str, float]:
    """The bytes of what a real learner holds after its first step, by fields of `RankMemory`."""
    learner = Learner(LearnerSettings.of(config), folder, rank, world, meet)
    try:
        adapter = adapter_for(folder)
        seen = {} if adapter.image_token_id is not None else {"pictures": 0}
        side = adapter.patching.side if seen == {} else 1
        learner.score_tokens([sample(adapter, k, side=side, **seen) for k in range(2)])
        models, found = learner._models, {}

        def size(tensors) -> int:
            return sum(local_shard(t).untyped_storage().nbytes() for t in tensors)

        state = models.optimizer.state_tensors()
        parameters = list(models.policy.module.parameters())
        found["weights"] = size(p for p in parameters if p.dtype != torch.uint8)
        tensors = models.policy.state_tensors()
        found["replicated"] = size(
            t for n, t in tensors.items() if t.dtype == torch.uint8 or four_bit_weights.is_scale(n)
        )
        found["gradients"] = size(p for p in parameters if p.requires_grad)
        found["moments"] = size(t for n, t in state.items() if "exp_avg" in n)
        found["remainders"] = size(models.policy.remainders.values())
        reference = models.reference
        found["reference"] = size(reference.module.parameters()) if reference else 0
        if world > 1 and config.model.lora.base != "nf4":  # the same pass as simulated
            with EvenRouting():
                peak = (
                    MemorySimulation(LearnerSettings.of(config), world)
                    .run_pass(models)
                    .extrapolated(0.0)
                )
            found |= {name: getattr(peak, name) for name in WORK}
    finally:
        learner.close()
    return found


def write_allocated(cases, folders, out: Path, world: int, rank: int) -> None:
    for case, (folder, chosen) in cases.items():
        meet = f"file://{out / case}"
        found = allocated(settings(chosen), folders[folder], rank, world, meet)
        (out / f"{case}-{rank}.json").write_text(json.dumps(found))


def check(found: RankMemory, expected: dict[str, float]) -> None:
    assert expected["weights"] > 0
    # Storage is padded to whole rows for all ranks.
    assert {n: getattr(found, n) for n in expected} == pytest.approx(expected, rel=0.02)


def check_ranks(cases, world: int, folders: dict[str, Path], out: Path) -> None:
    run_ranks(world, write_allocated, cases, folders, out, world)
    for case, (folder, chosen) in cases.items():
        expected = json.loads((out / f"{case}-0.json").read_text())
        work = {name: expected.pop(name) for name in WORK if name in expected}
        found = MemorySimulation(LearnerSettings.of(settings(chosen)), world).run(folders[folder])
        check(found, expected)
        assert {name: getattr(found, name) for name in work} == pytest.approx(work, rel=0.02)


@pytest.mark.quick("compact", "lora")
@pytest.mark.parametrize("case", CASES)
def test_one_rank_holds_what_the_plan_counts(case, tiny_vlm):
    config = settings(CASES[case])
    expected = allocated(config, tiny_vlm)
    found = MemorySimulation(LearnerSettings.of(config), 1).run(tiny_vlm)
    check(found, expected)
    assert found.activations > 0


def test_a_teacher_counts_with_its_own_size(tiny_vlm, tmp_path):
    sizes = {"hidden": 96, "layers": 3, "heads": 3, "kv_heads": 1}
    teacher = tiny_model.build(tmp_path / "teacher", 1, **sizes)
    overrides = ["model.dtype=bfloat16", "train.micro_batch_tokens=1024", "train.offload=true"]
    named = ["algorithm=opd", f"algorithm.teacher={teacher}", f"model.path={tiny_vlm}"]
    config = configuration.load("number_game", [*overrides, *named])
    learner, layout = (
        LearnerSettings.of(config),
        memory_plan.layout_on(1, 1, config.rollout, config.train),
    )
    found = memory_plan.plan_memory(learner, plan_rollouts(config), config.checkpoint, layout, 80e9)
    size = 2 * sum(p.numel() for p in load_on_meta(teacher).parameters())
    assert found.host.items["reference model, teacher"] == size
    # Without GPUs, nothing is simulated.
    own, both = (LearnerStateSize.of(tiny_vlm, learner, one) for one in (None, teacher))
    assert (own.teacher, both.teacher) == (own.model, size)
    (held,) = filter(
        None,
        HostMemoryPlanner(learner=learner, layout=layout, size=both)
        .plan(layout.nodes[0], None)
        .certain.values(),
    )
    assert held == both.state + both.gradients + size


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_vl_moe"])
def test_models_that_mask_images_in_layers_are_counted(family, tiny_vlm, tmp_path):
    folder = families.build(family, tiny_vlm, tmp_path / family)
    found = MemorySimulation(LearnerSettings.of(settings(CASES["compact"])), 1).run(folder)
    size = 2.0 * sum(p.numel() for p in load_on_meta(folder).parameters())
    check(found, {"weights": size, "remainders": size, "gradients": size})
    assert found.activations > 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_vlm):
    root = tmp_path_factory.mktemp("models")
    sizes = {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 1024}
    vision = {"vision_hidden": 32, "vision_depth": 1, "vision_heads": 2, "vision_intermediate": 64}
    tiny = tiny_model.build(root / "tiny", 0, **sizes, **vision)
    families_used = ("qwen3_moe", "qwen3_vl", "qwen3_vl_moe")
    built = {family: families.build(family, tiny, root / family) for family in families_used}
    return {"tiny": tiny, "tiny_vlm": tiny_vlm, **built}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_ranks_hold_what_the_plan_counts(folders, tmp_path):
    check_ranks(SHARDED, 2, folders, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", DIVIDED)
def test_ranks_that_share_layers_or_experts_hold_what_the_plan_counts(case, folders, tmp_path):
    # DTensor's caches keep the process groups of a layout: each has processes of its own.
    world, *chosen = DIVIDED[case]
    check_ranks({case: chosen}, world, folders, tmp_path)


def test_experts_are_not_divided_over_the_mesh_of_layers():
    rank = process_group.simulated(4, Parallelism(tensor=2, expert=2))
    try:  # layers that were taken for experts would be gathered matrix by matrix
        assert rank.tensor_mesh.mesh.tolist() == rank.expert_mesh.mesh.tolist() == [0, 1]
        assert rank.tensor_mesh != rank.expert_mesh
    finally:
        rank.leave()


@pytest.mark.slow
def test_layers_that_are_not_run_count_as_much_as_those_that_are(tmp_path):
    config = configuration.load("number_game_7b", ["model.path=Qwen/Qwen2.5-VL-32B-Instruct"])
    folder = config_folder(config.model, tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text())
    settings["text_config"]["num_hidden_layers"], settings["vision_config"]["depth"] = 8, 1
    (folder / "config.json").write_text(json.dumps(settings))
    lines = []
    simulation = MemorySimulation(LearnerSettings.of(config), 8, lines.append)
    found = simulation.run(folder)
    assert lines == [f"running {layers} of 8 layers" for layers in (4, 5, 6)]
    assert found == simulation._run_whole(folder, 8)
    assert min(astuple(found)) >= 0


def test_inputs_of_layers_wait_in_cpu_memory(tiny_vlm):
    config = settings(CASES["compact"])
    config.train.micro_batch_tokens, config.model.image_size = 256, None
    config.model.freeze_vision = True  # its backward pass would be the peak of so small a model
    kept = MemorySimulation(LearnerSettings.of(config), 1).run(tiny_vlm)
    config.train.activation_offload = True
    moved = MemorySimulation(LearnerSettings.of(config), 1).run(tiny_vlm)
    tokens, hidden, layers = 256, 32, 2
    assert moved.kept_on_cpu >= tokens * hidden * layers * 2
    assert moved.activations < kept.activations


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 57_344),  # 28 layers, 4 heads of keys and values of 128 numbers in 2 bytes
        ({"data_parallel_size": 2}, 57_344),
        ({"tensor_parallel_size": 2}, 28_672),
        ({"tensor_parallel_size": 8}, 14_336),  # no head is divided
        ({"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, 7_168),
    ],
)
def test_the_cache_of_a_divided_model_holds_whole_heads(arguments, expected, tmp_path):
    config = configuration.load("number_game_7b")
    config.rollout.actors, config.rollout.place = 1, "apart"
    config.rollout.engine_kwargs = arguments
    layout = memory_plan.layout_on(32, 1, config.rollout, config.train)
    folder = config_folder(config.model, tmp_path / "model")
    nothing = RankMemory(**dict.fromkeys((field.name for field in fields(RankMemory)), 0.0))
    planned = planner_of(config, layout, folder).plan(80e9, nothing)
    assert planned.kv_token == expected


def planner_of(config, layout, folder):
    learner, play = LearnerSettings.of(config), plan_rollouts(config)
    return memory_plan.MemoryPlanner(learner, play, config.checkpoint, layout, folder)


def planner(tmp_path, gpus, *overrides):
    config = configuration.load("number_game_7b", overrides)
    layout = memory_plan.layout_on(gpus, 1, config.rollout, config.train)
    folder = config_folder(config.model, tmp_path / "model")
    return planner_of(config, layout, folder), layout


def test_engines_that_do_not_fit_beside_moments_may_beside_those_in_8_bits(tmp_path):
    memory = RankMemory(
        weights=4.15e9, replicated=0, remainders=3.81e9, moments=15.23e9, gradients=3.81e9,
        reference=0, other_models=0, gathered=2.02e9, reduced=0.93e9, activations=9.48e9,
        kept_on_cpu=0,
    )  # fmt: skip
    four, _ = planner(tmp_path, 4)
    updates, engines = four.plan(40e9, memory).problems
    assert "Set optim.moments=8bit (about 11.4 GB), or use more GPUs" in updates
    assert engines.startswith("the KV cache of an engine has room for 0 tokens")
    assert "Set optim.moments=8bit (about 11.4 GB), or use more GPUs" in engines
    found = four.plan(40e9, replace(memory, moments=memory.moments / 4))
    assert found.problems == []
    beside = 4.15e9 + 3.81e9 + 15.23e9 / 4 + 1e9  # vLLM takes 63% of a GPU with 68% free
    assert found.playing["engine: left free"] == pytest.approx(0.37 * 40e9 - beside)


@pytest.mark.parametrize(("size", "state"), [("3B", 38.4), ("7B", 92.7), ("72B", 874.0)])
def test_cpu_memory_and_disk_hold_whole_checkpoints(size, state, tmp_path):
    chosen = [f"model.path=Qwen/Qwen2.5-VL-{size}-Instruct"]
    eight, layout = planner(tmp_path, 8, *chosen)
    nothing = RankMemory(**dict.fromkeys((field.name for field in fields(RankMemory)), 0.0))
    found = eight.plan(80e9, nothing, host=1e12)
    copies = "copies of an asynchronous checkpoint"
    assert found.host.items[copies] == pytest.approx(state * 1e9, rel=0.005)
    assert found.host.items["Ray's object store (at most)"] == 200e9
    assert found.host.items["virtual phones (estimated)"] == pytest.approx(0.74e9)
    assert found.disk.checkpoint == found.host.items[copies]
    assert found.disk.num_checkpoints == 4
    little = eight.plan(80e9, nothing, host=60e9)
    assert not [problem for problem in little.problems if "CPU" in problem]
    assert f"{layout.nodes[0].name}: the job may need" in little.host.warning


def test_offloaded_state_that_does_not_fit_into_cpu_memory_is_refused(tmp_path):
    eight, layout = planner(tmp_path, 8, "train.offload=true")
    moved = RankMemory(**dict.fromkeys((field.name for field in fields(RankMemory)), 10e9))
    (problem,) = eight.plan(800e9, moved, host=300e9).problems
    assert problem.startswith("node 0: the job needs 640.0 GB of CPU memory (")
    size = eight._size
    known = HostMemoryPlanner(learner=eight._learner, layout=layout, size=size)
    (found,) = filter(None, known.plan(layout.nodes[0], None).certain.values())
    assert found == size.state + size.gradients


def plan(capsys, *arguments: str) -> tuple[int, str]:
    code = cli.run(["plan", "number_game", *arguments])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


@pytest.mark.slow
def test_a_plan_lists_what_a_gpu_holds_and_what_does_not_fit(capsys):
    small = ["model.dtype=bfloat16", "train.micro_batch_tokens=1024"]
    code, shown = plan(capsys, *small, "--gpus", "2", "--gpu", "24GB")
    assert code == 0
    assert "tiny: 2 ranks and 2 engines together, 2 x 24 GB" in shown
    assert "gradients" in shown
    assert "fits" in shown.splitlines()
    code, shown = plan(capsys, *small, "--gpu", "2GB", "optim.moments=8bit")
    assert code == 1
    assert "does not fit: updates need" in shown
    assert "optim.offload_moments=true" in shown
    assert "does not fit: the KV cache of an engine has room for 0 tokens" in shown


def test_it_is_said_at_once_that_a_job_is_planned(capsys):
    code, shown = plan(capsys, "model.path=no/such/folder/here")
    assert code == 2
    assert shown.startswith("planning number_game without weights ...\n")


@pytest.mark.quick(2)
@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("cards", "status", "size", "total"),
    [
        ([80e9, 80e9], 0, "80.0 GB", "of 80"),
        ([2e9, 2e9], 1, "2.0 GB", "of 2"),
        ([80e9, 2e9], 0, "unknown", ""),  # the job uses one of them
        ([], 0, "unknown", ""),
    ],
)
def test_a_dry_run_plans_the_memory_of_the_gpus_that_are_there(
    cards, status, size, total, capsys, monkeypatch
):
    machine = MachineAccelerators(cards=tuple(("a GPU", memory) for memory in cards))
    monkeypatch.setattr(accelerators, "count", lambda: 2)
    monkeypatch.setattr(accelerators, "of_machine", lambda deadline_s: machine)
    job = ["frozen_lake", "model.dtype=bfloat16", "train.micro_batch_tokens=1024"]
    if status:
        job += ["checkpoint.keep=10000000", "checkpoint.every=1", "train.steps=4000000"]
    assert cli.run(["train", *job, "--dry-run"]) == status
    shown = capsys.readouterr().out
    assert "disk space" not in shown.partition("not checked:")[2]
    planned = yaml.safe_load(shown)
    assert planned["placement"] == {"this machine": {"GPU 0": "rank 0, engine 0"}}
    found = planned["memory"]
    assert found.pop("size of a GPU").startswith(size)
    misfits = found.pop("does not fit", [])
    assert len(found) == 4
    for title, items in found.items():
        assert str(items["total"]).endswith(total) or not title.startswith("GPU")
    assert bool(misfits) == bool(status) == ("All checks pass" not in shown)
    if misfits:
        texts = (
            "updates need",
            "the KV cache of an engine has room for 0",
            "runs: the disk has room for",
        )
        assert [text in said for text, said in zip(texts, misfits, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "large"], "--gpu large: must be a size such as 80GB"),
        (["model.path=no/such/folder/here"], "model.path=no/such/folder/here"),
        (["train.rank=2"], "train.rank"),
        (
            ["rollout.engine_kwargs.tensor_parallel_size=two"],
            "tensor_parallel_size must be a",
        ),
        (["train.ranks=3", "rollout.place=together"], "each rank needs a GPU"),
        (["--gpus", "3", "train.tensor_parallel=3"], "must divide the model's 4 attention heads"),
        (["optim.moments=bfloat16", "optim.betas=[0.9,0.999]"], "betas"),
    ],
)
def test_what_cannot_be_planned_is_refused(capsys, arguments, message):
    code, shown = plan(capsys, *arguments)
    assert code == 2
    assert message in shown
