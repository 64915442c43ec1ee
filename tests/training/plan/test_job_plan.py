"""What is looked at before a job starts."""

import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl import accelerators
from agentrl import config as configuration
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.cluster import node_discovery
from agentrl.cluster.placement import Node
from agentrl.config import Config, ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.models.model_record import model_config, record_image_sizes
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers import open_rollouts
from agentrl.training.learner import learner_settings
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.plan import model_checks
from agentrl.training.plan.dry_run import describe_plan
from agentrl.training.plan.host_memory_plan import misfits_without_gpus
from agentrl.training.plan.job_plan import (
    check_learner,
    check_model_play,
    check_scripted_play,
    plan_training,
)
from agentrl.training.plan.learner_state_size import LearnerStateSize

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from family_models import build

EXTEND = Path(__file__).parents[3] / "examples" / "extend"


@pytest.mark.parametrize("overrides", [[], ["eval.kwargs.pixels=140"]])
def test_arguments_of_an_environment_are_checked_once(monkeypatch, overrides):
    """For a data set it is read whole."""
    seen = []

    def looks(cls, pixels=None, **kwargs):
        seen.append(pixels)
        return 3 if pixels == 140 else 7

    overrides = [*overrides, "rollout.engine=hf", "rollout.launcher=local", "warm_start.episodes=1"]
    config = configuration.load("counting", [*overrides, "eval.rings=null"])
    cls = resolve_env(config.env).entry_point
    monkeypatch.setattr(cls, "check_kwargs", classmethod(looks), raising=False)
    planned = described(config)
    own = config.env.kwargs.get("pixels")
    assert seen == [own, *([140] if config.eval.kwargs else [])]
    count = planned["resolved"]["distinct episodes"]
    assert count == {"training": 7, "evaluation": 3 if config.eval.kwargs else 7}


def test_the_algorithm_is_created_once(monkeypatch, tiny_vlm):
    created = []

    def create(config):
        created.append(load_algorithm(config))
        return created[-1]

    monkeypatch.setattr(learner_settings, "load_algorithm", create)
    config = configuration.load("counting", ["rollout.engine=hf", "rollout.launcher=local"])
    plan = plan_training(config, begins=False)
    plan = plan.without_long_prompts(tiny_vlm).placed(plan.layout)
    LearnerStateSize.of(tiny_vlm, plan.learner)
    Learner(plan.learner, tiny_vlm).close()
    assert created == [plan.learner.algorithm]
    assert plan.learner.train is plan.settings.train


def test_an_argument_of_evaluation_that_the_constructor_rejects_is_named_by_its_own_key():
    config = configuration.load("frozen_lake", ["eval.kwargs.map_name=9x9"])
    with pytest.raises(ConfigError, match=r"KeyError: '9x9'.*with eval\.kwargs=.*'map_name'"):
        check_scripted_play(plan_rollouts(config))


def test_unavailable_weight_transport_is_an_error_before_any_work():
    overrides = ["rollout.engine=hf", "rollout.launcher=local", "train.weight_transfer=shared"]
    with pytest.raises(
        ConfigError, match=r"train\.weight_transfer=shared needs rollout\.engine=vllm"
    ):
        described(configuration.load("counting", overrides))


def test_8bit_moments_without_bitsandbytes_are_refused(monkeypatch):
    overrides = ["rollout.engine=hf", "rollout.launcher=local", "optim.moments=8bit"]
    monkeypatch.setattr(model_checks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"optim\.moments=8bit needs bitsandbytes.*\[qlora\]"):
        described(configuration.load("counting", overrides))


def test_a_transport_within_one_machine_is_refused_for_two(machine, monkeypatch):
    machine()
    two = [Node(address=f"10.0.0.{k}", cpus=2, id=f"{k}") for k in (1, 2)]
    monkeypatch.setattr(open_rollouts, "find_nodes", lambda launcher: two)
    settings = job("rollout.engine=vllm", "train.weight_transfer=shared")
    with pytest.raises(ConfigError, match=r"shared: cannot reach engines on other nodes.*=file"):
        plan_training(settings)


def test_a_resumed_job_need_not_repeat_demonstrations_longer_than_its_replies():
    settings = job("rollout.launcher=local", "rollout.max_new_tokens=5", "warm_start.episodes=1")
    with pytest.raises(ConfigError, match="the warm start trains on"):
        described(settings)
    assert "longest reply" in described(settings, warm_start_pending=False)["resolved"]


@pytest.fixture
def machine(monkeypatch):
    """Lets this machine have so many cores and GPUs, and these packages."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def have(cores=2, gpus=0, packages=()):
        monkeypatch.setattr(node_discovery, "cores", lambda: cores)
        monkeypatch.setattr(accelerators, "count", lambda: gpus)
        monkeypatch.setattr(
            model_checks, "find_spec", lambda name: name if name in packages else None
        )

    return have


def described(config, *, warm_start_pending=True):
    plan = plan_training(config, warm_start_pending=warm_start_pending, begins=False)
    return describe_plan(plan)


def job(*overrides):
    return configuration.load("counting", ["rollout.engine=hf", "rollout.launcher=ray", *overrides])


@pytest.mark.parametrize(
    ("cores", "gpus", "ranks", "said"),
    [
        (1, 0, 2, None),
        (1, 0, 3, "share the 1 cores of this machine; set train.ranks=2 or fewer"),
        (4, 0, 4, None),
        (4, 0, 5, "share the 4 cores of this machine; set train.ranks=4"),
        (1, 4, 4, None),
        (64, 4, 8, "each rank needs a GPU, but the cluster has 4"),
        (64, 1, 2, "the cluster has 1; set train.ranks and rollout.actors to 1"),
    ],
)
def test_more_ranks_than_this_machine_can_hold_are_an_error(machine, cores, gpus, ranks, said):
    machine(cores, gpus)
    with pytest.raises(ConfigError, match=said) if said else nullcontext():
        plan_training(job(f"train.ranks={ranks}"))


@pytest.mark.parametrize(
    ("gpus", "packages", "dtype", "said"),
    [
        (
            1,
            (),
            "bfloat16",
            r"needs flash-attn, which is not installed; run: pip .*'agentrl-screens\[flash\]'",
        ),
        (0, ["flash_attn"], "bfloat16", "requires a GPU, but this machine has none"),
        (1, ["flash_attn"], "float32", "set model.dtype=bfloat16"),
        (1, ["flash_attn"], "bfloat16", None),
        (1, ["kernels"], "bfloat16", None),
    ],
)
def test_missing_flash_attn_is_an_error_before_any_work(machine, gpus, packages, dtype, said):
    machine(gpus=gpus, packages=packages)
    with pytest.raises(ConfigError, match=said) if said else nullcontext():
        plan_training(job("model.attention=flash_attention_2", f"model.dtype={dtype}"))


@pytest.mark.parametrize(
    ("family", "said"),
    [("Gemma 3", "is causal within images"), ("Qwen2.5", None)],
)
def test_models_that_vllm_computes_otherwise_on_cpus_are_refused(machine, tmp_path, family, said):
    machine()
    settings = job(f"model.path={build(family, tmp_path)}", "rollout.engine=vllm")
    with pytest.raises(ConfigError, match=f"{said}.*engine=hf") if said else nullcontext():
        plan_training(settings)
    check_model_play(plan_rollouts(settings))
    machine(gpus=1)
    plan_training(settings)


def test_a_model_that_vllm_does_not_support_is_refused(machine, tmp_path):
    machine(gpus=1)
    settings = job(f"model.path={build('Phi-4-multimodal', tmp_path)}", "rollout.engine=vllm")
    with pytest.raises(ConfigError, match=r"does not support models of this family.*engine=hf"):
        plan_training(settings)


def test_a_model_of_the_hub_is_refused_before_it_is_downloaded(machine, monkeypatch, tmp_path):
    machine()
    snapshot = tmp_path / "models--google--gemma" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "gemma3", "vision_config": {}}')
    (tmp_path / "models--google--gemma" / "refs").mkdir()
    (tmp_path / "models--google--gemma" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot be used to train google/gemma.*within images"):
        plan_training(job("model.path=google/gemma", "rollout.engine=vllm"))


@pytest.mark.parametrize(
    "learners", ["train.ranks=64", "algorithm.kl.coefficient=0.1", "model.lora.base=nf4"]
)
def test_requirements_of_the_learner_do_not_prevent_playing(machine, learners):
    machine()
    with pytest.raises(ConfigError):
        plan_training(job(learners))
    check_model_play(plan_rollouts(job(learners)))


def test_a_player_of_the_warm_start_that_is_gone_does_not_prevent_the_model_from_playing(tiny_vlm):
    players = "env.players={expert: 'no.such.module:Player'}"
    config = configuration.load(
        "frozen_lake", [players, f"model.path={tiny_vlm}", "warm_start.player=expert"]
    )
    plan = plan_rollouts(config)
    check_model_play(plan)
    with pytest.raises(ConfigError, match=r"no\.such\.module"):
        check_scripted_play(plan, ["expert"])


def test_the_plan_lists_what_does_not_come_with_agentrl(tmp_path, monkeypatch):
    (tmp_path / "shorter.py").write_text("def shorter(episode):\n    return 0.0\n")
    monkeypatch.chdir(tmp_path)
    rewards = (
        "rewards=[{function: 'agentrl.rewards.form:action'}, {function: 'shorter.py:shorter'}]"
    )
    loss = f"algorithm.loss={EXTEND}/loss.py:SimplePolicyLoss"
    planned = described(job("rollout.launcher=local", "warm_start=null", rewards, loss))
    assert planned["resolved"]["custom classes"] == [
        f"loss = {EXTEND}/loss.py:SimplePolicyLoss",
        "reward = shorter.py:shorter",
    ]
    planned = described(job("rollout.launcher=local", "warm_start=null"))
    assert "custom classes" not in planned["resolved"]


def test_the_image_size_that_a_model_was_trained_with_is_kept_or_named(tmp_path, tiny_vlm, caplog):
    model = shutil.copytree(tiny_vlm, tmp_path / "merged")
    assert model_config(str(model)).image_size is None
    record_image_sizes(model, ModelConfig(path="tiny", image_size=[84, 140]))
    assert model_config(str(model)).image_size == [84, 140]
    local = ["rollout.engine=hf", "rollout.launcher=local"]
    config = configuration.resolve(Config(), [f"model.path={model}", *local])
    check_learner(LearnerSettings.of(config), [])
    assert f"model.image_size=null, but {model} was trained with [84, 140]" in caplog.text
    caplog.clear()
    local = replace(config, model=model_config(str(model)))
    check_learner(LearnerSettings.of(local), [])
    assert not caplog.text


def test_every_start_of_a_job_scores_an_episode_with_its_rewards(tmp_path):
    file = tmp_path / "my_reward.py"
    file.write_text("def reward(episode):\n    return episode.turns[-1].info['nothing']\n")
    settings = [f"rewards=[{{function: {file}:reward}}]"]
    job = configuration.load("frozen_lake", [*settings, "rollout.launcher=local"])
    with pytest.raises(ConfigError, match=r"cannot be scored: .*KeyError: 'nothing'"):
        plan_training(job, warm_start_pending=True)


def test_a_text_that_the_environment_cannot_fill_is_an_error_before_the_job():
    def check(text):
        job = ["algorithm=opd", "algorithm.teacher=self", f"algorithm.privileged='{text}'"]
        job = configuration.load("frozen_lake", [*job, "rollout.launcher=local"])
        plan_training(job, begins=False)

    with pytest.raises(ConfigError, match=r"FrozenLake-v1 has no entry 'prop' .*mean 'prob'"):
        check("chance {prop}")
    check("chance {prob}")


@pytest.mark.parametrize(
    ("model", "cores", "missing"),
    [
        ("Qwen/Qwen2.5-VL-3B-Instruct", 2, ["GB of CPU memory", "no GPU"]),
        ("tiny", 2, []),
    ],
)
def test_a_model_for_gpus_does_not_fit_on_a_few_cores(model, cores, missing):
    job = configuration.load("frozen_lake", [f"model.path={model}"])
    node = Node(address="here", cpus=cores, gpus=0)
    found = misfits_without_gpus(LearnerSettings.of(job), [node], 24e9)
    assert len(found) == len(missing)
    assert all(words in text for words, text in zip(missing, found, strict=True))
