"""A job on two nodes that share nothing but the installed software (benchmarks/two_nodes.sh)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.rollout.collector import requests_of_step
from agentrl.runs.metrics_file import read_metrics

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


JOB = r"""
mkdir out
agentrl cluster --deadline 300 > out/cluster
mine='rewards=[{function: "mine/my_rewards.py:bonus", kwargs: {table: mine/data/bonus.json}}]'
agentrl train number_game run.dir=out run.name=run rollout.engine=hf devices.source=virtual:4 \
  warm_start=null train.steps=100 rollout.groups=4 rollout.group_size=3 rollout.concurrency=4 \
  train.ranks=1 env.max_turns=3 rollout.start_deadline_s=300 checkpoint.every=1 \
  eval.every=0 eval.episodes=2 eval.baselines=[] env.prompt=mine/prompt.jinja "$mine" &
job=$!
played_on_2() { cat out/run/episodes/index-rollout1.jsonl 2>/dev/null | grep -c '"train-' || true; }
until_played_on_2() { until [ "$(played_on_2)" -gt $1 ]; do kill -0 $job; sleep 0.2; done; }

# The second machine loses power in the middle of a step, and comes back.
until_played_on_2 0
there=$($NODE_2 readlink /proc/self/ns/net)
for process in /proc/[0-9]*; do
  if [ "$(readlink $process/ns/net)" = "$there" ] && ! grep -q infinity $process/cmdline; then
    kill -9 ${process#/proc/} || true
  fi
done
# Not the installation, which is mounted below /tmp if it was there.
$NODE_2 find /tmp /dev/shm -xdev -mindepth 1 ! -path /tmp/home -delete 2>/dev/null || true
before=$(played_on_2)
$RAY_NODE_2
until_played_on_2 $before
replaced='"rollout/replaced_workers": 1'
until grep -q "$replaced" out/run/metrics.jsonl; do kill -0 $job; sleep 0.2; done
kill -TERM $job
wait $job || true
last=$(ls out/run/checkpoints | sed -n 's/^step-0*//p' | sort -n | tail -1)
agentrl train --resume out/run train.ranks=2 train.steps=$((last + 1))
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
def test_a_job_on_both_nodes_goes_on_without_one_and_uses_it_again(tmp_path, mine):
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
    steps = run.summary["steps"]
    played = run.episodes()
    ids = [one.id for one in played]
    expected = {t.id for s in range(1, steps + 1) for t in requests_of_step("train", s, [0] * 4, 3)}
    assert expected <= {*ids}
    assert len(ids) == len({*ids})
    assert all(one.outcome.name == "TRUNCATED" for one in played), [one.error for one in played]
    metrics = read_metrics(tmp_path / "run")
    workers = [one["rollout/workers"] for one in metrics if "rollout/workers" in one]
    assert {1.0, 2.0} >= {*workers} >= {2.0}
    hosts = {one.device.rpartition("@")[2] for one in played}
    assert hosts == {"10.77.0.1", "10.77.0.2"}
    episodes = [run.episode(one.id) for one in played]
    assert {one.reward for one in played} == {0.25}
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
    alone = ["train.ranks=1", "rollout.actors=1", "rollout.launcher=local"]
    alone.append(f"train.steps={steps + 1}")
    resumed = [sys.executable, "-m", "agentrl", "train", "--resume", tmp_path / "run", *alone]
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert replay.open(tmp_path / "run").summary["steps"] == steps + 1
