"""A job whose engine and weight transport are files of the user's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
SETTINGS = (
    "rollout.engine=engine.py:PlainEngine",
    "train.weight_transfer=transport.py:DeltaTransport",
    "train.check_weights=true",
    "train.steps=1",
    "rollout.groups=2",
    "rollout.group_size=4",
    "rollout.max_new_tokens=6",
    "env.max_turns=2",
    "eval.episodes=2",
    "eval.baselines=[]",
    "warm_start=null",
    "algorithm.entropy_coefficient=0.1",  # every group has a gradient
    "logging=[file]",
    "run.dir=runs",
    "run.name=job",
)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_an_engine_and_a_transport_in_the_users_folder_train(tmp_path, launcher):
    for name in ("own_environment.yaml", "own_environment.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    for name in ("engine.py", "transport.py"):
        shutil.copy(EXAMPLES / "extend" / name, tmp_path)
    command = ["train", "own_environment.yaml", *SETTINGS, f"rollout.launcher={launcher}"]
    done = subprocess.run(
        [sys.executable, "-m", "agentrl", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = (tmp_path / "runs" / "job" / "metrics.jsonl").read_text().splitlines()
    (step,) = [line for line in map(json.loads, metrics) if line["stage"] == "reinforcement"]
    assert step["learner/grad_norm"] > 0
    assert step["learner/mismatch_max"] < 1e-5
