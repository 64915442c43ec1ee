"""The job for one GPU: its settings, its report, and the whole job in small on the CPU."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentrl

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu_job(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_job

    return gpu_job


def test_the_settings_of_every_size_are_valid_and_the_budgets_below_nine_minutes(gpu_job, tmp_path):
    for name, size in gpu_job.SIZES.items():
        job = gpu_job.GpuJob(name, 12, tmp_path / name)
        config = agentrl.load_config(size.config, job.overrides())
        assert config.devices.source == f"virtual:{size.phones}"
        assert 0 < size.saved <= size.killed < size.steps == config.train.steps
        assert sum(size.budgets.values()) < 9 * 60


def test_a_job_that_exceeds_a_budget_leaves_a_report(gpu_job, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "job"
    options = ["--size", "tiny", "--folder", str(folder), "--budget-factor", "0.001"]
    monkeypatch.setattr(sys, "argv", ["gpu_job.py", *options])
    assert gpu_job.main() == 1
    report = json.loads((folder / "report.json").read_text())
    assert [error.split(";")[0] for error in report["errors"]] == [
        "build: not finished after 0.03 s"
    ]
    assert [(stage["stage"], stage["outcome"]) for stage in report["stages"]] == [
        ("build", "failed")
    ]
    assert "build: not finished" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gpu_job.main()  # the folder is not empty
    monkeypatch.setattr(sys, "argv", ["gpu_job.py", *options, "--stage", "merge"])
    assert gpu_job.main() == 1
    report = json.loads((folder / "report.json").read_text())
    assert [stage["stage"] for stage in report["stages"]] == ["build", "merge"]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.adb
@pytest.mark.timeout(1300)
def test_the_gpu_job_runs_in_small_on_the_cpu(adb_server, tmp_path):
    folder = tmp_path / "job"
    command = [sys.executable, BENCHMARKS / "gpu_job.py", "--size=tiny", f"--folder={folder}"]
    # vLLM only serves: starting it three times would take most of the minutes.
    quick = ["--budget-factor=5", "rollout.engine=hf", "warm_start.steps=20"]
    done = subprocess.run([*command, *quick], capture_output=True, text=True, timeout=1250)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    report = json.loads((folder / "report.json").read_text())
    stages = ["build", "train", "resume", "check", "merge", "serve"]
    assert [stage["stage"] for stage in report["stages"]] == stages
    assert {stage["outcome"] for stage in report["stages"]} == {"ok"}
    assert report["errors"] == []
    assert "served" in report
    assert report["engine check"]["logprob_mean"] < 1e-3
    assert report["steps"]["learner/mismatch_max"] < 1e-3
    with (folder / "samples.csv").open() as file:
        samples = list(csv.DictReader(file))
    assert {sample["stage"] for sample in samples} >= {"train", "resume", "serve"}
    assert all(float(sample["memory free"]) > 0 for sample in samples)
    assert not list(folder.rglob("*.safetensors"))
