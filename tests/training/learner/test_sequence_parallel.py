"""Two ranks that share the tokens of each row learn what one rank learns, whatever the model."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from agentrl import config as configuration
from agentrl.config import Config, LoraConfig, ModelConfig, WarmStartConfig, algorithm_config
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.policies.models import adapter_for, load_model
from agentrl.training.batching.collate import token_targets
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.micro_batches import single_batch
from agentrl.training.learner.parallel import sequence_parallel
from agentrl.training.plan.job_plan import plan_training
from agentrl.types import Outcome
from tests.policies import families
from tests.training.episodes import play
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample, step_samples

STEPS = 3
ALGORITHMS = {
    "grpo": {},
    "dapo": {"kl": {"add_to": "loss", "coefficient": 0.1}, "epochs": 2, "minibatch": 3},
    "ppo": {"importance_correction": {"kind": "token_truncate"}, "entropy_coefficient": 0.01},
    "gspo": {"epochs": 2, "importance_correction": {"kind": "sequence_truncate"}},
    "prime": {},
}
MODELS = {
    "lora": {"lora": LoraConfig(rank=4)},
    "frozen": {"freeze_vision": True},
    "bfloat16": {"dtype": "bfloat16"},
}
FLEX = {"attention": "flex"}
LAYOUTS = {
    # Every sample in a row of its own, without a mask; many rows of one pass; all in one row.
    "alone": {"micro_batch_tokens": 1, "share_prefixes": False},
    "rows": {"micro_batch_tokens": 400, "share_prefixes": False},
    "recomputed": {"micro_batch_tokens": 10_000, "gradient_checkpointing": True},
}
FAMILIES = ("qwen2_vl", "qwen3_vl", "text")
EPISODES = (*ALGORITHMS, *MODELS, *LAYOUTS)


def settings(name: str, world: int, sharing: int, replicas: int = 1) -> Config:
    config = Config(
        algorithm=algorithm_config(
            **({"name": name, **ALGORITHMS[name]} if name in ALGORITHMS else {"name": "grpo"})
        ),
        model=ModelConfig(**(FLEX if name == "flex" else MODELS.get(name, {}))),
    )
    config.optim.lr, config.optim.grad_clip = 1e-4, 100.0
    config.rollout.max_new_tokens, config.train.micro_batch_tokens = 8, 110
    config.train.ranks, config.train.sequence_parallel = world, sharing
    config.train.replicas = replicas
    for key, value in LAYOUTS.get(name, {}).items():
        setattr(config.train, key, value)
    return config


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "seconds"}


def episodes(name, folder, open_learner, steps=STEPS, first=0):
    """The metrics of every step of an algorithm."""
    model_adapter, (config, learner) = adapter_for(folder), open_learner(name, folder)
    ends = [Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.TERMINATED]
    groups = [
        [play(model_adapter, seed, m, end) for m, end in enumerate(ends)] for seed in range(2)
    ]
    found = []
    for step in range(first, first + steps):
        built = step_samples(
            groups, config, learner.score_tokens, version=step, seed=step, kl_coefficient=0.1
        )
        found.append(without_times(learner.update(built.samples)))
    return found, learner


def texts(name, folder, open_learner):
    """The metrics of steps of a model that may be text-only, and of supervised steps."""
    model_adapter, (_, learner) = adapter_for(folder), open_learner(name, folder)
    shown, side = (1, 1) if name == "text" else (3, model_adapter.patching.side)
    items = [sample(model_adapter, k, reply=3 + k, pictures=k % shown, side=side) for k in range(5)]
    found = [without_times(learner.update(items)) for _ in range(STEPS)]
    learner.begin_offline(WarmStartConfig())
    return found + [without_times(learner.offline_step(items, 1e-3)) for _ in range(2)], learner


def kept(folder, open_learner):
    """Bytes kept for the backward pass of a long episode, and the widths that its layers see."""
    _, learner = open_learner("alone", folder)
    batch = single_batch([sample(adapter_for(folder), 0, text=3001, reply=2)], adapter_for(folder))
    widths, sizes = set(), []

    def note(module, inputs, output):
        widths.add(inputs[0].shape[1])

    for layer in learner._policy.module.layers():
        layer.mlp.register_forward_hook(note)
    with saved_tensors_hooks(lambda t: sizes.append(t.nbytes), lambda _: None):
        learner._policy.module(batch, 1.0)
    learner.close()
    return {"bytes": sum(sizes), "widths": sorted(widths), "length": batch.token_ids.shape[1]}


def gradients(folder, open_learner):
    """Full gradients by parameter, of a sum that weights samples with images differently."""
    model_adapter, (_, learner) = adapter_for(folder), open_learner("rows", folder)
    side = model_adapter.patching.side
    items = [sample(model_adapter, k, reply=3 + k, pictures=k % 3, side=side) for k in range(4)]
    batch = single_batch(items, model_adapter)
    scorer = learner._policy.module
    (scorer(batch, 0.9).logprobs * token_targets(items).advantages).sum().backward()
    found = {name: p.grad.full_tensor() for name, p in scorer.named_parameters()}
    learner.close()
    return found


def scored(folder, open_learner):
    """Log-probabilities with FlexAttention, whose masks are of whole rows; without gradients."""
    model_adapter, (_, learner) = adapter_for(folder), open_learner("flex", folder)
    items = [sample(model_adapter, k % 2, text=90, reply=3 + k, pictures=k % 2) for k in range(5)]
    found = learner._logprobs(learner._policy, items)
    learner.close()
    return found


def opener(made, rank=0, world=1, sharing=1, meet=None, replicas=1):
    def open_learner(name, folder):
        config = settings(name, world, sharing, replicas)
        where = None if meet is None else f"file://{meet}-{len(made)}"
        made.append(Learner(LearnerSettings.of(config), folder, rank, world, where))
        return config, made[-1]

    return open_learner


def everything(folders: dict[str, Path], out: Path, rank: int) -> None:
    """One of two ranks, through all cases."""
    made: list[Learner] = []
    open_learner = partial(opener, made, rank, 2, 2)
    results = {}
    for name in (*EPISODES, *FAMILIES):
        run = episodes if name in EPISODES else texts
        folder = folders.get(name, folders["tiny"])
        results[name], learner = run(name, folder, open_learner(out / name))
        if name == "ppo":
            learner.save_state(out / "state")
        learner.close()
    results["kept"] = kept(folders["tiny"], open_learner(out / "kept"))
    results["flex"] = scored(folders["tiny"], open_learner(out / "flex"))
    for name in ("tiny", "qwen3_vl"):
        gradient = gradients(folders[name], open_learner(out / f"{name}-gradient"))
        torch.save(gradient, out / f"{name}-{rank}.pt")
    (out / f"{rank}.json").write_text(json.dumps(results))


def four(folder: Path, out: Path, rank: int) -> None:
    """One of four ranks: two share each row, with one copy of the weights and with two."""
    results, made = [], list[Learner]()
    for replicas in (1, 2):
        open_learner = opener(made, rank, 4, 2, out / "ppo", replicas)
        found, learner = episodes("ppo", folder, open_learner)
        assert learner._rank.mesh.shape == {1: (4,), 2: (2, 2)}[replicas]
        learner.close()
        results.append(found)
    (out / f"{rank}.json").write_text(json.dumps(results))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    sizes = {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 1, "intermediate": 64}
    vision = {"vision_hidden": 32, "vision_depth": 1, "vision_heads": 2, "vision_intermediate": 64}
    root = tmp_path_factory.mktemp("models")
    model = tiny_model.build(root / "tiny", 0, **sizes, **vision)
    return {"tiny": model, **{f: families.build(f, model, root / f) for f in FAMILIES}}


@pytest.fixture(scope="module")
def two(folders, tmp_path_factory):
    """The metrics of two ranks, and the folder with their checkpoint and gradients."""
    out = tmp_path_factory.mktemp("two")
    run_ranks(2, everything, folders, out)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)], out


def one(run, name, folder):
    """The metrics of one rank with whole rows."""
    found, learner = run(name, folder, opener([]))
    learner.close()
    return found


def assert_same(found, expected, name=""):
    # In bfloat16 a step that rounds otherwise is the least that can differ.
    rel, abs = (0.05, 5e-3) if name == "bfloat16" else (1e-4, 2e-6)
    assert len(found) == len(expected)
    for step, (other, own) in enumerate(zip(found, expected, strict=True)):
        assert other == pytest.approx(own, rel=rel, abs=abs), f"step {step}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*EPISODES, *FAMILIES])
def test_sequence_parallel_ranks_learn_what_one_does(name, two, folders):
    (found, others), _ = two
    expected = one(
        episodes if name in EPISODES else texts, name, folders.get(name, folders["tiny"])
    )
    assert any(step["grad_norm"] > 1e-3 for step in expected)
    assert_same(found[name], expected, name)
    assert others[name] == found[name]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["tiny", "qwen3_vl"])
def test_every_parameter_has_the_gradient_of_whole_rows(name, two, folders):
    _, out = two
    found = torch.load(out / f"{name}-0.pt")
    expected = gradients(folders[name], opener([]))
    assert found.keys() == expected.keys()
    whole = torch.stack([own.norm() for own in expected.values()]).norm()
    for parameter, own in expected.items():
        assert (found[parameter] - own).norm() < 1e-4 * own.norm() + 1e-7 * whole, parameter


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_rank_resumes_from_sequence_parallel_ranks(two, folders):
    _, out = two
    expected, learner = episodes("ppo", folders["tiny"], opener([]), STEPS + 1)
    learner.close()
    config = settings("ppo", 1, 1)
    resumed = Learner(LearnerSettings.of(config), folders["tiny"])
    resumed.restore(out / "state")
    found, _ = episodes("ppo", folders["tiny"], lambda *_: (config, resumed), 1, first=STEPS)
    resumed.close()
    assert_same(found, expected[-1:])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_hold_only_their_slice_of_a_long_row(two, folders):
    (found, _), _ = two
    alone = kept(folders["tiny"], opener([]))
    assert alone["widths"] == [alone["length"]]
    assert found["kept"]["widths"] == [(alone["length"] + 1) // 2]
    assert found["kept"]["bytes"] < 0.55 * alone["bytes"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_with_flex_attention_score_what_one_does_with_sdpa(two, folders):
    (found, others), _ = two
    expected = scored(folders["tiny"], lambda _, folder: opener([])("grpo", folder))
    assert found["flex"] == others["flex"]
    for own, one_rank in zip(found["flex"], expected, strict=True):
        assert len(own) > 2
        assert own == pytest.approx(one_rank, abs=5e-6)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_group_of_ranks_shares_its_own_rows_with_and_without_replicas(folders, tmp_path):
    run_ranks(4, four, folders["tiny"], tmp_path)
    expected = one(episodes, "ppo", folders["tiny"])
    for rank in range(4):
        for found in json.loads((tmp_path / f"{rank}.json").read_text()):
            assert_same(found, expected)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["train.sequence_parallel=0"], "train.sequence_parallel=0: must be above 0"),
        (["train.ranks=1", "train.sequence_parallel=2"], "must divide train.ranks=1"),
        (["train.ranks=6", "train.sequence_parallel=4"], "must divide train.ranks=6"),
        (
            ["train.ranks=2", "train.sequence_parallel=2", "model.attention=eager"],
            "requires model.attention=auto, flex or sdpa, not eager",
        ),
        (["train.ranks=3", "train.sequence_parallel=3"], "must divide.* 4 attention heads"),
    ],
)
def test_unsupported_sequence_parallelism_is_refused_before_any_work(overrides, said):
    with pytest.raises(ConfigError, match=said):
        plan_training(configuration.load("number_game", overrides))


def test_attention_heads_are_checked_before_any_work(folders):
    for name in ("qwen3_vl", "text"):
        overrides = [f"model.path={folders[name]}", "train.ranks=3", "train.sequence_parallel=3"]
        with pytest.raises(ConfigError, match=r"=3 must divide.* 4 attention heads"):
            plan_training(configuration.load("number_game", overrides))


def test_sliding_window_layers_are_refused(folders):
    model = load_model(folders["text"])
    model.config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ConfigError, match="layers with sliding_attention, which do not support it"):
        sequence_parallel.prepare(model, 2)


@pytest.mark.parametrize(("length", "width"), [(6, 3), (7, 4), (1, 1)])
def test_every_position_is_in_exactly_one_slice(length, width):
    slices = [sequence_parallel.Slice(number=n, count=2, group=None) for n in range(2)]
    rows = torch.arange(3 * length).view(3, length)
    found = torch.full((3 * length,), -1)
    for part in slices:
        assert part.of(rows).shape == (3, width)
        mine, own = part.mine(torch.arange(3 * length), length)
        found[mine] = part.of(rows).flatten()[own]
    assert found.tolist() == list(range(3 * length))
