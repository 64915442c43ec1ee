"""What a job does when one of its processes dies, and where its folder cannot rename."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.config import Config
from agentrl.errors import ClusterError, ConfigError, LearnerError, LearnerLost
from agentrl.runs.run_folder import RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.job import run_with_restarts
from agentrl.training.trainer import train
from tests.without_rename import forbid_rename, needs_seccomp

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_environment.yaml"
QUICK = [
    "warm_start=null", "rollout.groups=2", "rollout.group_size=2", "rollout.concurrency=4",
    "eval.episodes=1", "eval.baselines=[]", "logging=[file]",
]  # fmt: skip


class Failures:
    """Takes the place of a whole job, which fails after given steps and in the end succeeds."""

    def __init__(self, folder, failures):
        self.folder, self.failures, self.attempts = folder, failures, []

    async def __call__(self, plan, folder, state, *, resumed):
        self.attempts.append(resumed)
        step, error, *saved = self.failures.pop(0) if self.failures else (9, None)
        for checkpoint in saved:
            (folder.path / "checkpoints" / checkpoint).mkdir(parents=True)
            (folder.path / "checkpoints" / checkpoint / "trainer.json").touch()
        if step is not None:
            state.step = step
            state.seconds["start"] = state.seconds.get("start", 0.0) + 1.0
        if error is not None:
            raise error


@pytest.fixture
def failing(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)

    def run(restarts, *failures):
        job = Failures(folder, list(failures))
        monkeypatch.setattr(train.Reinforcement, "run", job)
        run_with_restarts(train.Reinforcement(Config()), None, folder, restarts, resumed=False)
        return job.attempts

    run.folder = folder
    return run


def lost(step):
    return step, LearnerLost("rank 1 of the learner died")


def test_job_resumes_after_each_lost_rank_and_records_it(failing):
    assert failing(3, lost(2), lost(4)) == [False, True, True]
    found = failing.folder.load_state().restarts
    assert [(one["step"], one["resumed_from"]) for one in found] == [(2, 0), (4, 0)]
    assert {one["error"] for one in found} == {"rank 1 of the learner died"}


def test_steps_after_the_last_checkpoint_are_repeated(failing, caplog):
    assert failing(1, (*lost(3), "step-00001")) == [False, True]
    assert "saved up to step 1; steps 2 to 3 are repeated" in caplog.text


@pytest.mark.parametrize(
    ("restarts", "failures"),
    [
        (0, [lost(2)]),  # restarts are switched off
        (2, [lost(2), lost(3), lost(4)]),  # more than allowed
        (3, [lost(2), lost(2)]),  # no progress
        (3, [(2, LearnerError("training diverged"))]),
        (3, [(2, ConfigError("the checkpoint belongs to another job"))]),
        (3, [(None, ClusterError("Ray did not start"))]),  # nothing has begun
    ],
)
def test_job_stops_with_the_original_error(failing, restarts, failures):
    with pytest.raises(type(failures[-1][1])) as raised:
        failing(restarts, *failures)
    assert raised.value is failures[-1][1]


def descendants(pid):
    """The processes below one, by id, with their command lines."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, thread.read_text().split()):
            found[child] = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
            found |= descendants(child)
    return found


def steps_of(run):
    """The metrics of the steps so far."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    return [one for one in map(json.loads, lines) if one["stage"] == "reinforcement"]


def wait_for(process, holds):
    deadline = time.monotonic() + 400
    while not holds():
        assert process.poll() is None, "the run has ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill_one(process, kind):
    """Kill the latter of the two processes of an actor's class."""
    found = [p for p, name in descendants(process.pid).items() if kind in name]
    assert len(found) == 2
    os.kill(max(found), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_job_goes_on_after_one_of_two_tensor_parallel_ranks_was_killed_and_then_with_one(tmp_path):
    agentrl = [sys.executable, "-m", "agentrl", "train"]
    command = [*agentrl, EXAMPLE, *QUICK, "checkpoint.every=4", "rollout.launcher=ray"]
    command += ["train.ranks=2", "train.tensor_parallel=2", "train.steps=4"]
    command.append("algorithm.entropy_coefficient=0.1")  # as equal rewards have no gradient
    command += [f"run.dir={tmp_path}", "run.name=killed"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = tmp_path / "killed"
    try:
        wait_for(process, lambda: len(steps_of(run)) >= 2)
        kill_one(process, "LearnerActor")
        output, _ = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, output[-3000:]
    assert "of the learner died" in output
    assert "saved the warm start, but no training steps yet; steps 1 to 2 are repeated" in output
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["restarts"], summary["steps"]) == (1, 4)
    (restart,) = json.loads((run / "state.json").read_text())["restarts"]
    assert restart["resumed_from"] == 0
    alone = ["train.ranks=1", "train.tensor_parallel=1", "rollout.launcher=local", "train.steps=5"]
    done = subprocess.run(
        [*agentrl, "--resume", run, *alone], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    steps = steps_of(run)
    assert [one["step"] for one in steps] == [1, 2, 3, 4, 5]
    assert all(one["learner/grad_norm"] > 0 for one in steps)
    # The engine has the weights of both ranks.
    assert all(one["learner/mismatch_max"] < 1e-4 for one in steps)


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(500)
def test_a_killed_rollout_worker_is_replaced_and_gets_the_next_weights(tmp_path):
    """Two ranks send weights to vLLM without a file; in the end, SIGTERM stops the job."""
    pytest.importorskip("vllm")
    run, log = tmp_path / "killed", tmp_path / "log"
    command = [sys.executable, "-m", "agentrl", "train", EXAMPLE, *QUICK, "checkpoint.every=1000"]
    command += ["rollout.launcher=ray", "rollout.engine=vllm", "rollout.actors=2", "train.ranks=2"]
    command += ["rollout.group_size=4", "train.weight_transfer=shared", "train.steps=1000"]
    command += [f"run.dir={tmp_path}", "run.name=killed", "train.check_weights=true"]

    def played(step):
        """The workers that have played episodes of a step."""
        files = (run / "episodes").glob("index-rollout*.jsonl")
        return {file.stem for file in files if f'"train-{step:05}' in file.read_text()}

    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_for(process, lambda: len(steps_of(run)) == 2 and played(3))
        kill_one(process, "RolloutActor")
        wait_for(process, lambda: steps_of(run)[-1]["rollout/replaced_workers"] == 1)
        last = steps_of(run)[-1]["step"] + 1
        wait_for(process, lambda: len(played(last)) == 2 and len(steps_of(run)) >= last)
        below = descendants(process.pid)
        process.terminate()
        assert process.wait(60) == 143, log.read_text()[-3000:]
    finally:
        process.kill()
    assert "was restarted on" in log.read_text()
    assert not [name for pid, name in below.items() if Path(f"/proc/{pid}").exists()]
    steps = steps_of(run)
    assert [one["step"] for one in steps] == [*range(1, len(steps) + 1)]
    assert max(one["learner/mismatch_max"] for one in steps) < 1e-3
    episodes = [one for one in replay.open(run).episodes() if one.step in range(1, len(steps) + 1)]
    assert len([one for one in episodes if one.id.startswith("train")]) == 8 * len(steps)
    checkpoint_store.check_files(checkpoint_store.by_name(run, f"{len(steps)}"))


@needs_seccomp
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_job_runs_where_nothing_can_be_renamed(tmp_path):
    """As on a mounted bucket: the kernel refuses every rename of the whole process."""
    command = [sys.executable, "-m", "agentrl", "train", EXAMPLE, *QUICK, "train.steps=2"]
    command += ["checkpoint.every=1", "checkpoint.keep=1", f"run.dir={tmp_path}", "run.name=bucket"]
    done = subprocess.run(
        command, preexec_fn=forbid_rename, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "bucket"
    checkpoint_store.check_files(checkpoint_store.by_name(run, "2"))
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step-00002"]
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    assert (run / "model" / "model.safetensors").is_file()
