"""Sweeps over values of settings."""

import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from agentrl import cli
from agentrl.errors import ConfigError
from agentrl.training.sweep import plan_sweep, run_sweep

SHORT = (
    "rollout.groups=1", "rollout.group_size=2", "rollout.concurrency=2", "algorithm.minibatch=2",
    "warm_start=null", "eval.episodes=2", "eval.every=0", "env.max_turns=4",
)  # fmt: skip


def test_all_combinations_in_the_order_of_the_command():
    jobs = plan_sweep("frozen_lake", ["seed=0..2", "algorithm.name=grpo,dapo", "train.steps=3"])
    assert [job.name for job in jobs] == [
        f"seed={seed},algorithm.name={name}" for seed in range(3) for name in ("grpo", "dapo")
    ]
    assert jobs[0].settings == ("seed=0", "algorithm.name=grpo", "train.steps=3")


def test_commas_in_brackets_and_quotes_are_part_of_a_value():
    text = 'run.search_path=[a,b],["c,d"]'
    jobs = plan_sweep("frozen_lake", [text])
    assert [job.settings for job in jobs] == [
        ("run.search_path=[a,b]",),
        ('run.search_path=["c,d"]',),
    ]
    assert all("/" not in job.name and '"' not in job.name for job in jobs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["seed=0"], "no setting has several values"),
        (["seed=0..1", "seed=2"], "each setting must be given once"),
        (["seed=0,0"], "the same value twice"),
        (["seed=3..1"], "a range must be ascending"),
        (["seed=0..99999"], "a range must be ascending"),
        (["seed=0..999", "train.steps=1..9"], "9,000 combinations"),
        (["seed=0..1", "nope=1"], "nope"),
        (["seed=0..1", "train.steps=1,-1"], "train.steps"),
        (["seed=0..1", "run.name=a"], "--name"),
        (["seed"], "key=value"),
    ],
)
def test_mistakes_are_found_before_anything_runs(settings, message):
    with pytest.raises(ConfigError, match=message):
        plan_sweep("frozen_lake", settings)


def test_a_folder_belongs_to_one_sweep(tmp_path):
    jobs = plan_sweep("frozen_lake", ["seed=0..1"])
    settings = ["frozen_lake", *(f"{job.settings[0]} train.steps=9" for job in jobs)]
    (tmp_path / "sweep.txt").write_text("\n".join(settings) + "\n")
    with pytest.raises(ConfigError, match="belongs to a sweep with different settings"):
        run_sweep("frozen_lake", jobs, tmp_path)


@pytest.mark.slow
def test_a_sweep_is_stopped_and_continued_and_survives_a_failing_job(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["model.path=tiny,/absent", "train.steps=1", *SHORT]
    command = ["sweep", "frozen_lake", *settings, "--name", "mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "agentrl", *command], stdout=subprocess.PIPE, text=True
    )
    log = tmp_path / "runs" / "mine" / "model.path=tiny.log"
    ends = time.monotonic() + 120
    while not (log.is_file() and "start" in log.read_text()):
        assert time.monotonic() < ends
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143

    assert cli.run([*command, "--parallel", "2"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"model.path=tiny: finished, \w+ \S+ -> ", said)
    assert "model.path=_absent: exit code 2" in said
    assert cli.run(["runs", "runs/mine", "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["name"], row["state"], row["step"]) == ("model.path=tiny", "finished", 1)
    assert cli.run(command) == 1
    assert "1 of 2 jobs were already finished" in capsys.readouterr().out


@pytest.mark.slow
def test_a_job_does_not_outlive_a_killed_sweep(tmp_path):
    command = ["sweep", "frozen_lake", "seed=0..1", "train.steps=99", *SHORT, "--name", "mine"]
    process = subprocess.Popen([sys.executable, "-m", "agentrl", *command], cwd=tmp_path)
    log = tmp_path / "runs" / "mine" / "seed=0.log"
    ends = time.monotonic() + 120
    while not (log.is_file() and "start" in log.read_text()):
        assert time.monotonic() < ends
        time.sleep(0.1)
    (job,) = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    job.wait(60)
    assert "Traceback" not in log.read_text()
