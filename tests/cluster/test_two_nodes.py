"""A job on two nodes that share nothing but the installed software (benchmarks/two_nodes.sh)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import replay

ROOT = Path(__file__).parents[2]
NODES = ROOT / "benchmarks" / "two_nodes.sh"


def can_isolate():
    try:
        enter = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
        make = "mount -t tmpfs none /tmp && ip link add name node-1 type veth peer name node-2"
        done = subprocess.run([*enter, "sh", "-c", make], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


JOB = """
mkdir out
mine='rewards=[{function: "mine/my_rewards.py:bonus", kwargs: {table: mine/data/bonus.json}}]'
agentrl cluster --deadline 300 > out/cluster
agentrl train number_game run.dir=out run.name=run rollout.engine=hf devices.source=virtual:4 \
  warm_start=null train.steps=1 rollout.groups=2 rollout.group_size=2 rollout.concurrency=4 \
  train.ranks=2 env.max_turns=3 rollout.start_deadline_s=300 \
  eval.every=0 eval.episodes=2 eval.baselines=[] env.prompt=mine/prompt.jinja "$mine"
agentrl train --resume out/run train.steps=2
$NODE_2 ls /tmp /dev/shm > out/left
"""


FILES = {
    "my_rewards.py": """
import my_tables

def bonus(episode, table):
    return my_tables.read(table)["bonus"]
""",
    "my_tables.py": """
import json
from pathlib import Path

def read(table):
    return json.loads(Path(table).read_text())
""",
    "data/bonus.json": '{"bonus": 0.25}',
    "prompt.jinja": "{{ instructions }}",
}


@pytest.fixture
def mine(tmp_path):
    """A folder of the user's own code and data, which only the first node gets."""
    for name, text in FILES.items():
        file = tmp_path / "mine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "mine"


@pytest.mark.slow
@pytest.mark.skipif(not can_isolate(), reason="needs user namespaces, unshare and ip")
@pytest.mark.timeout(1000)
def test_ranks_engines_and_phones_of_one_job_are_on_both_nodes(tmp_path, mine):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [NODES, "-c", mine, "-o", tmp_path, "sh", "-ec", JOB],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=700,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    run = replay.open(tmp_path / "run")
    played = run.episodes()
    # Two steps; sampled and greedy before the first and after each.
    assert len(played) == 2 * 4 + 3 * 2 * 2
    assert all(one.outcome.name == "TRUNCATED" for one in played), [one.error for one in played]
    hosts = {one.device.rpartition("@")[2] for one in played}
    assert hosts == {"10.77.0.1", "10.77.0.2"}
    episodes = [run.episode(one.id) for one in played]
    assert {one.total for one in played} == {0.25}
    turns = [turn for one in episodes for turn in one.episode.turns]
    frames = [id for turn in turns for id in turn.frames]
    assert frames
    assert all(run.has_frame(id) for id in frames)
    writers = {file.stem for file in (tmp_path / "run" / "episodes").glob("index-*.jsonl")}
    assert {"index-rollout0", "index-rollout1"} <= writers
    logs = {file.stem for file in (tmp_path / "run" / "logs").iterdir()}
    assert {"rollout0", "rollout1", "learner0", "learner1"} <= logs
    cluster = (tmp_path / "cluster").read_text()
    assert "10.77.0.1" in cluster
    assert "10.77.0.2" in cluster
    left = (tmp_path / "left").read_text()
    assert not [
        name for name in ("spool", "weights", "outbox", "files") if f"agentrl-{name}" in left
    ]
    # Both ranks' shards are here: one node alone continues.
    alone = ["train.steps=3", "train.ranks=1", "rollout.actors=1", "rollout.launcher=local"]
    resumed = [sys.executable, "-m", "agentrl", "train", "--resume", tmp_path / "run", *alone]
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert replay.open(tmp_path / "run").summary["steps"] == 3
