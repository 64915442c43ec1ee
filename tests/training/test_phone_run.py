"""The main job in short, with every real part: phones, adb, vLLM, Ray, FSDP."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.policies.kits import kit_for
from agentrl.training import checkpoints, seeds
from agentrl.training.batching import to_samples
from agentrl.types import Outcome

pytestmark = [pytest.mark.vllm, pytest.mark.adb]

SMALL = [
    "devices.source=virtual:8",
    "rollout.concurrency=8",
    "rollout.groups=2",
    "rollout.group_size=4",
    "env.max_turns=5",
    "warm_start.episodes=8",
    "warm_start.steps=150",
    "train.steps=3",
    "eval.every=0",
    "eval.episodes=4",
    "eval.baselines=[]",
    "checkpoint.every=1",
    "logging=[file]",
]


def command(*arguments):
    return [sys.executable, "-m", "agentrl", "train", *map(str, arguments)]


def _kill_after_the_first_step(arguments, run, said):
    with said.open("wb") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output)
    deadline = time.monotonic() + 240
    try:
        while (checkpoints.latest(run) or Path("step-00000")).name < "step-00001":
            assert process.poll() is None, said.read_text()[-3000:]
            assert time.monotonic() < deadline, "no checkpoint of the first step in time"
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def killed_and_resumed(adb_server, tmp_path_factory):
    """A run that is killed after its first step, and gone on with."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [*SMALL, f"run.dir={folder}", "run.name=phones", "warm_start.cache=null"]
    run = folder / "phones"
    _kill_after_the_first_step(command("number_game", *settings), run, folder / "said")
    done = subprocess.run(command("--resume", run), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return run


@pytest.mark.timeout(600)
def test_killed_run_goes_on_with_the_seeds_that_come_next(killed_and_resumed):
    run = killed_and_resumed
    config = configuration.load(run / "config.yaml")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 3
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if s["stage"] == "reinforcement"] == [1, 2, 3]
    for step in (1, 2, 3):
        played = {
            e.seed for e in replay.open(run).episodes() if (e.split, e.step) == ("train", step)
        }
        assert played == set(seeds.training(config, step))


def test_every_played_episode_is_recorded_with_its_frames(killed_and_resumed):
    run = killed_and_resumed
    recorded = replay.open(run)
    finished = [e for e in recorded.episodes() if not e.outcome.void]
    assert {e.split for e in finished} == {"demo", "train", "eval"}
    episode = recorded.episode(finished[-1].id).episode
    frame = recorded.frame(episode.turns[0].frames[0])
    assert frame.shape == (1280, 720, 3)
    assert frame.std() > 5


def test_what_was_sampled_is_what_is_trained(killed_and_resumed):
    run = killed_and_resumed
    recorded = replay.open(run)
    kit = kit_for(run / "start")
    episodes = [e for e in recorded.episodes() if e.split == "train" and not e.outcome.void]
    assert episodes
    for summary in episodes:
        episode = recorded.episode(summary.id).episode
        assert episode.outcome in (Outcome.TERMINATED, Outcome.TRUNCATED)
        samples = to_samples(episode, summary.advantages)
        assert len(samples) == len(episode.turns)  # window:1 begins anew with every screen
        for turn, sample in zip(episode.turns, samples, strict=True):
            assert sample.token_ids == turn.prompt_ids + turn.reply_ids
            trained = [t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m]
            assert tuple(trained) == turn.reply_ids
            assert not set(turn.reply_ids) & set(kit.banned_token_ids)
            assert set(turn.reply_versions) == {summary.step - 1}


def test_engine_and_learner_agree_on_what_was_sampled(killed_and_resumed):
    run = killed_and_resumed
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["stage"] == "reinforcement"]
    seen = [s["learner/mismatch_max"] for s in steps if s.get("learner/mismatch_max") is not None]
    assert seen
    assert max(seen) < 1e-3
