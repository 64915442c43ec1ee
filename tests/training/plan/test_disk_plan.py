"""The plan of disk space, compared with the real disk and with files that a run wrote."""

import logging
from pathlib import Path
from typing import Any

import pytest

from agentrl import cli
from agentrl.cluster.machine_resources import Space
from agentrl.config import (
    CheckpointConfig,
    Config,
    LoraConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    algorithm_config,
)
from agentrl.errors import ConfigError
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.plan.disk_plan import DiskPlan, is_in_memory
from agentrl.training.plan.learner_state_size import LearnerStateSize


def plan(
    start: Path, *, keep: int = 2, steps: int = 20, keep_gb: float | None = None, **optim: Any
) -> DiskPlan:
    config = Config(optim=OptimConfig(**optim))
    size = LearnerStateSize.of(start, LearnerSettings.of(config))
    kept = CheckpointConfig(every=10, keep=keep)
    return DiskPlan.of(size, kept, RunConfig(keep_gb=keep_gb), steps, evaluates=True)


@pytest.mark.parametrize(
    ("model", "train", "algorithm"),
    [
        ({}, {}, "grpo"),
        ({"dtype": "bfloat16", "freeze_vision": True}, {"master_dtype": "bfloat16"}, "grpo"),
        ({"dtype": "bfloat16", "lora": LoraConfig(rank=2)}, {}, "grpo"),
        ({}, {}, "ppo"),
    ],
)
def test_a_checkpoint_has_the_size_that_is_planned(
    model: dict[str, Any], train: dict[str, Any], algorithm: str, tiny_vlm: Path
) -> None:
    config = Config(model=ModelConfig(**model), algorithm=algorithm_config(name=algorithm))
    config.train.master_dtype = train.get("master_dtype", "float32")
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    try:
        learner._models.prepare_rl()  # a critic is part of checkpoints from the first step on
        state = learner._models.state_tensors()
        saved = sum(tensor.nbytes for name, tensor in state.items() if "lora" not in name)
    finally:
        learner.close()
    size = LearnerStateSize.of(tiny_vlm, LearnerSettings.of(config))
    assert size.state == pytest.approx(saved, rel=0.05)  # a critic has no output head


def test_checkpoints_are_those_that_are_on_disk_at_the_same_time(tiny_vlm: Path) -> None:
    assert plan(tiny_vlm).num_checkpoints == 3  # before the first step, after 10 and after 20
    assert plan(tiny_vlm, steps=1000).num_checkpoints == 4  # two, the best, and the next
    assert plan(tiny_vlm, steps=1000, keep=50).num_checkpoints == 52
    assert plan(tiny_vlm, moments="8bit").checkpoint * 2 == plan(tiny_vlm).checkpoint
    assert list(plan(tiny_vlm).describe()) == ["3 checkpoints", "exported model"]  # any recordings


def test_what_does_not_fit_is_an_error_and_recordings_are_a_warning(
    tiny_vlm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan(tiny_vlm, keep_gb=0.001).check(tmp_path)
    assert not caplog.messages
    with caplog.at_level(logging.WARNING):
        plan(tiny_vlm, keep_gb=1e9).check(tmp_path)
    assert "run.keep_gb=1e+09" in caplog.text
    with pytest.raises(ConfigError, match=r"10,000,002 checkpoints of .* lower checkpoint.keep"):
        plan(tiny_vlm, keep=10**7, steps=10**9).check(tmp_path)


def test_a_job_that_does_not_fit_stops_before_it_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["checkpoint.keep=10000000", "checkpoint.every=1", "train.steps=4000000"]
    command = ["train", "frozen_lake", f"run.dir={tmp_path}", *settings]
    assert cli.run(command) == 2
    assert "the disk has room for" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_disks_in_memory_are_known() -> None:
    assert is_in_memory(Path("/dev/shm/run"))
    assert not is_in_memory(Path("/proc/self"))


def test_a_job_for_which_memory_does_not_suffice_stops_before_it_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    little = Space(total=10**9, free=100_000)
    monkeypatch.setattr("agentrl.training.plan.host_memory_plan.host_memory", lambda: little)
    command = ["train", "frozen_lake", f"run.dir={tmp_path}", "rollout.launcher=local"]
    assert cli.run([*command, "rollout.engine=hf"]) == 2
    said = capsys.readouterr().err
    assert "this machine: the job needs" in said
    assert "published weights (/dev/shm)" in said
