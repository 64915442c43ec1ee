"""The plan of disk space, compared with the real disk and with files that a run wrote."""

import logging
from pathlib import Path

import pytest

from agentrl import cli
from agentrl.config import CheckpointConfig, ModelConfig, OptimConfig, RunConfig
from agentrl.errors import ConfigError
from agentrl.training.disk_space import DiskPlan


def plan(start: Path, *, keep: int = 2, steps: int = 20, **optim: str) -> DiskPlan:
    return DiskPlan.of(
        start=start,
        model=ModelConfig(path=str(start)),
        optim=OptimConfig(**optim),
        checkpoint=CheckpointConfig(every=10, keep=keep),
        steps=steps,
        evaluates=True,
    )


def test_checkpoints_are_those_that_are_on_disk_at_the_same_time(tiny_vlm: Path) -> None:
    assert plan(tiny_vlm).num_checkpoints == 3  # before the first step, after 10 and after 20
    assert plan(tiny_vlm, steps=1000).num_checkpoints == 4  # two, the best, and the next
    assert plan(tiny_vlm, steps=1000, keep=50).num_checkpoints == 52
    assert plan(tiny_vlm, moments="8bit").checkpoint * 2 == plan(tiny_vlm).checkpoint


def test_what_does_not_fit_is_an_error_and_recordings_are_a_warning(
    tiny_vlm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan(tiny_vlm).check(tmp_path, RunConfig(keep_gb=0.001))
    assert not caplog.messages
    with caplog.at_level(logging.WARNING):
        plan(tiny_vlm).check(tmp_path, RunConfig(keep_gb=1e9))
    assert "run.keep_gb=1e+09" in caplog.text
    with pytest.raises(ConfigError, match=r"10,000,002 checkpoints of .* lower checkpoint.keep"):
        plan(tiny_vlm, keep=10**7, steps=10**9).check(tmp_path, RunConfig())


def test_a_job_that_does_not_fit_stops_before_it_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["checkpoint.keep=10000000", "checkpoint.every=1", "train.steps=4000000"]
    command = ["train", "frozen_lake", f"run.dir={tmp_path}", "rollout.seed_per=group", *settings]
    assert cli.run(command) == 2
    assert "the disk has room for" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
