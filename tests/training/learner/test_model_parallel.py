"""Ranks that share layers or experts, or have replicas of the weights, learn what one rank does."""

import contextlib
import json

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from agentrl import config as configuration
from agentrl.config import Config, LoraConfig, algorithm_config
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.policies.models import ModelAdapter, adapter_for, load_on_meta
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import model_parallel, sharded_checkpoint
from agentrl.training.plan.job_plan import plan_training
from tests.policies import families
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample, with_scores

STEPS = 2
FAMILIES = ("qwen3_vl", "qwen3_vl_moe", "qwen3_moe", "text")
PPO = {
    "name": "ppo",
    "critic": {"lr": 1e-3},
    "kl": {"add_to": "loss", "coefficient": 0.1},
}
"""With a critic and a reference model."""
PRIME = {"name": "prime", "implicit_reward": {"lr": 1e-4}}
"""With an implicit reward model and a reference model."""
# The engine's probabilities would leave some tokens at the limit of a ratio, where roundings decide
# about a gradient.
ON_POLICY = {"name": "grpo", "importance_correction": {"kind": "token_truncate"}}
TWO = {
    "tensors": ("tiny", {"tensor_parallel": 2}, PPO),
    "tensors of a text-only model": ("text", {"tensor_parallel": 2}, PRIME),
    "tensors with adapters": ("tiny", {"tensor_parallel": 2, "lora": LoraConfig(rank=4)}, PPO),
    "tensors with 8-bit moments": ("tiny", {"tensor_parallel": 2, "moments": "8bit"}),
    "tensors in bfloat16, recomputed": (
        "qwen3_vl",
        {"tensor_parallel": 2, "dtype": "bfloat16", "gradient_checkpointing": True},
        ON_POLICY,
    ),
    "replicas": ("text", {"replicas": 2}),
    "experts": ("qwen3_moe", {"expert_parallel": 2}, PPO),
    "experts with adapters": (
        "qwen3_moe",
        {"expert_parallel": 2, "lora": LoraConfig(rank=4)},
        PRIME,
    ),
    "experts and tensors": ("qwen3_vl_moe", {"expert_parallel": 2, "tensor_parallel": 2}, PRIME),
}
FOUR = {
    "replicas of tensors": ("qwen3_vl", {"replicas": 2, "tensor_parallel": 2}, PPO),
    "sharded tensors": ("tiny", {"tensor_parallel": 2}),
    "sharded experts": ("qwen3_vl_moe", {"expert_parallel": 2, "gradient_checkpointing": True}),
    "experts of two groups": ("qwen3_moe", {"expert_parallel": 4, "tensor_parallel": 2}, PPO),
}


def opened(case, folders, rank=0, world=1, meet=None):
    """A learner, and its samples."""
    name, settings, *algorithm = case
    config = Config(algorithm=algorithm_config(**(algorithm[0] if algorithm else {"name": "grpo"})))
    config.optim.lr, config.optim.grad_clip = 1e-4, 100.0
    config.train.micro_batch_tokens = 110
    for key, value in settings.items():
        section = next(s for s in (config.model, config.optim, config.train) if hasattr(s, key))
        if world > 1 or not key.endswith(("_parallel", "replicas")):
            setattr(section, key, value)
    adapter = adapter_for(folders[name])
    shown, side = (1, 1) if adapter.image_token_id is None else (3, adapter.patching.side)
    items = [sample(adapter, k, reply=3 + k, pictures=k % shown, side=side) for k in range(5)]
    return Learner(LearnerSettings.of(config), folders[name], rank, world, meet), items


def updates(learner, items, count=STEPS):
    """The metrics of some steps."""
    metrics = [learner.update(with_scores(learner, items)) for _ in range(count)]
    return [{name: value for name, value in step.items() if name != "seconds"} for step in metrics]


def save(learner, out):
    learner.save_weights(out / "weights.safetensors")
    learner.export(out / "export")
    if learner._settings.model.lora.rank:
        learner.save_adapter(out / "adapter")
    learner.save_state(out / "state")
    dist.barrier()  # rank 0 may still be writing


def one_of(case, folders, out, state, world, rank):
    """One of several ranks: some steps, and one after the state of a single rank."""
    learner, items = opened(case, folders, rank, world, f"file://{out / 'meet'}")
    metrics = updates(learner, items)
    save(learner, out)
    if "moments" not in case[1]:
        learner.restore(state)
        metrics += updates(learner, items, 1)
    learner.close()
    (out / f"{rank}.json").write_text(json.dumps(metrics))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    sizes = {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 1024}
    vision = {"vision_hidden": 32, "vision_depth": 1, "vision_heads": 2, "vision_intermediate": 64}
    tiny = tiny_model.build(root / "tiny", 0, **sizes, **vision)
    return {"tiny": tiny, **{f: families.build(f, tiny, root / f) for f in FAMILIES}}


def assert_same(found, expected, settings):
    # In bfloat16 a step that rounds otherwise is the least that can differ.
    rel, abs = (0.05, 5e-3) if "dtype" in settings else (1e-4, 2e-6)
    assert len(found) == len(expected)
    for step, (other, own) in enumerate(zip(found, expected, strict=True)):
        assert other == pytest.approx(own, rel=rel, abs=abs), f"step {step}"


def check(case, world, folders, tmp_path):
    """Several ranks against one: metrics, weights, and a step after each has read the other."""
    one, several, settings = tmp_path / "one", tmp_path / "several", case[1]
    several.mkdir()
    learner, items = opened(case, folders)
    expected = updates(learner, items)
    assert expected[0]["grad_norm"] > 1e-3
    save(learner, one)
    run_ranks(world, one_of, case, folders, several, one / "state", world)
    check_files(one, several, count=3 if "lora" in settings else 2)
    if not {"dtype", "moments"} & settings.keys():
        check_states(one / "state", several / "state")
    if "moments" in settings:
        with pytest.raises(ConfigError, match=r"optim\.moments='8bit with train\.tensor_parallel"):
            learner.restore(several / "state")
    else:
        next_step = updates(learner, items, 1)
        learner.restore(several / "state")
        assert_same(updates(learner, items, 1), next_step, settings)
        expected += next_step
    learner.close()
    for rank in range(world):
        assert_same(json.loads((several / f"{rank}.json").read_text()), expected, settings)


def check_files(one, several, count):
    """Published and exported weights, and adapters."""
    files = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
    assert len(files) == count
    for path in files:
        own, other = load_file(one / path), load_file(several / path)
        assert own.keys() == other.keys()
        for name, tensor in own.items():
            if tensor.dtype == torch.bfloat16:
                torch.testing.assert_close(other[name], tensor, rtol=8e-3, atol=5e-4)
            else:
                assert (tensor - other[name]).norm() < 2e-6 * tensor.norm() + 1e-6, (path, name)


def check_states(one, several):
    """Weights and moments of all models; biases begin as zeros, and so are all of a few steps."""
    own, other = (sharded_checkpoint.read(folder, "") for folder in (one, several))
    assert own.keys() == other.keys()
    for name in own.keys() - {"rng"}:
        distance = (own[name].float() - other[name].float()).norm()
        assert distance <= 1e-3 * own[name].float().norm(), name


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TWO)
def test_two_ranks_learn_what_one_does(name, folders, tmp_path):
    check(TWO[name], 2, folders, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_learn_what_one_does(name, folders, tmp_path):
    check(FOUR[name], 4, folders, tmp_path)


MODEL_PARALLEL = [
    (["train.ranks=4", "train.tensor_parallel=3"], "tensor_parallel=3: must divide train.ranks=4"),
    (["train.ranks=6", "train.replicas=4"], "train.replicas=4: train.ranks=6 must be a multiple"),
    (
        ["train.ranks=8", "train.tensor_parallel=4", "train.expert_parallel=2"],
        "train.expert_parallel=2: must be a multiple of train.tensor_parallel=4",
    ),
    (
        ["train.ranks=4", "train.tensor_parallel=2", "train.sequence_parallel=2"],
        "cannot be combined with train.tensor_parallel=2",
    ),
    (
        ["train.ranks=2", "train.tensor_parallel=2", "model.lora={rank: 4, base: nf4}"],
        "cannot be combined with model.lora.base=nf4",
    ),
    (["train.ranks=3", "train.tensor_parallel=3"], "must divide the model's 4 attention heads"),
    (
        ["train.ranks=2", "train.expert_parallel=2"],
        "no plan for the experts of models of the family 'qwen2_5_vl_text'",
    ),
]


@pytest.mark.parametrize(("overrides", "said"), MODEL_PARALLEL)
def test_what_cannot_be_divided_is_refused_before_any_work(overrides, said):
    with pytest.raises(ConfigError, match=said):
        plan_training(configuration.load("number_game", overrides))


SIZES = {
    "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_experts": 8, "vocab_size": 50,
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "tensor", "experts", "said"),
    [
        ("llama", 2, 1, None),
        ("gemma3_text", 2, 1, None),
        ("qwen3_moe", 2, 4, None),
        ("gpt2", 2, 1, "has no plan for models of the family 'gpt2'"),
        ("mixtral", 2, 1, "does not divide the experts of models of the family 'mixtral'"),
        ("qwen3_moe", 2, 1, "set train.expert_parallel to 2 or a multiple"),
        ("qwen3_moe", 1, 3, "must divide the model's 8 experts"),
        ("llama", 4, 1, "must divide the model's 2 key-value heads"),
    ],
)
def test_what_can_be_divided_depends_on_the_family_and_sizes(
    family, tensor, experts, said, tmp_path
):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **SIZES}))
    model = load_on_meta(tmp_path)
    with contextlib.nullcontext() if said is None else pytest.raises(ConfigError, match=said):
        model_parallel.check(model, ModelAdapter(), tensor, experts)
