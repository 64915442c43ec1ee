"""The main job in short, with every real part: phones, adb, vLLM, Ray, FSDP."""

import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentrl import config as configuration
from agentrl import replay
from agentrl.policies.models import adapter_for
from agentrl.training import env_seeds
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import sharded_checkpoint
from agentrl.types import Outcome
from tests.training.samples import training_samples

pytestmark = [pytest.mark.vllm, pytest.mark.adb, pytest.mark.slow]

SMALL = [
    "devices.source=virtual:8",
    "rollout.concurrency=8",
    "rollout.groups=2",
    "rollout.group_size=4",
    "env.max_turns=5",
    "warm_start.episodes=8",
    "warm_start.steps=100",
    "warm_start.batch=8",
    "train.steps=2",
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
        while (checkpoint_store.latest(run) or Path("step-00000")).name < "step-00001":
            assert process.poll() is None, said.read_text()[-3000:]
            assert time.monotonic() < deadline, "no checkpoint of the first step in time"
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _run_to_the_end(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def whole_run(adb_server, tmp_path_factory):
    """A run on phones as slow as real ones that was killed after its first step, and resumed."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [*SMALL, f"run.dir={folder}", "run.name=phones", "warm_start.cache=null"]
    settings += ["eval.baselines=[random, expert]", "env.kwargs.rounds=2"]
    settings += ["devices.effect_delay_ms=[50, 300]"]
    run = folder / "phones"
    _kill_after_the_first_step(command("number_game", *settings), run, folder / "said")
    shutil.copytree(run / "checkpoints" / "step-00001", folder / "when-killed" / "step-00001")
    _run_to_the_end(command("--resume", run))
    return run


@pytest.mark.timeout(600)
def test_killed_run_resumes_with_the_next_seeds(whole_run):
    run = whole_run
    config = configuration.load(run / "config.yaml")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 2
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if s["stage"] == "reinforcement"] == [1, 2]
    for step in (1, 2):
        played = {
            e.seed for e in replay.open(run).episodes() if (e.split, e.step) == ("train", step)
        }
        rollout = config.rollout
        groups = range((step - 1) * rollout.groups, step * rollout.groups)
        assert played == {env_seeds.training_seeds(config.seed, rollout, one) for one in groups}


@pytest.mark.timeout(600)
def test_killed_run_resumes_with_its_weights_and_optimizer(whole_run):
    """The step after the kill, learned again here from what was recorded, ends where it did."""
    run = whole_run
    config = configuration.load(run / "config.yaml")
    learner = Learner(LearnerSettings.of(config), run / "start")
    checkpoint_store.load(run.parent / "when-killed" / "step-00001", learner)
    learner.update(_samples_of_step(run, config, 2), 2)
    learner.save_state(run.parent / "again")
    learner.close()
    again, then = (
        sharded_checkpoint.read(folder, "")
        for folder in (run.parent / "again", run / "checkpoints" / "step-00002" / "learner")
    )
    assert again.keys() == then.keys()
    for name, one in again.items():
        if name != "rng":
            torch.testing.assert_close(one, then[name], rtol=1e-4, atol=1e-6, msg=name)
    killed = sharded_checkpoint.read(run.parent / "when-killed" / "step-00001" / "learner", "")
    assert any(not torch.equal(killed[name], then[name]) for name in then if "policy/" in name)


def _samples_of_step(run, config, step):
    """What the trainer made of a step's episodes; pictures from the recorded frames."""
    recorded, model_adapter = replay.open(run), adapter_for(run / "start")
    summaries = [
        e for e in recorded.episodes()
        if (e.split, e.step) == ("train", step) and e.advantages is not None
    ]  # fmt: skip

    def seen(frame):
        return model_adapter.scale(frame, tuple(config.model.image_size), config.model.max_pixels)

    samples = []
    for summary in sorted(summaries, key=lambda e: e.id):
        episode = recorded.episode(summary.id).episode
        turns = tuple(
            replace(turn, images=tuple(seen(recorded.frame(frame)) for frame in turn.frames))
            for turn in episode.turns
        )
        samples += training_samples(
            replace(episode, turns=turns), per_token(episode, summary), index=len(samples)
        )
    return samples


@pytest.mark.timeout(600)
def test_summary_has_the_documented_entries(whole_run):
    summary = json.loads((whole_run / "summary.json").read_text())
    players = {when: summary[when] for when in ("random", "expert")}
    for when, how in itertools.product(("before", "after"), ("sampled", "greedy")):
        players[f"{when} {how}"] = summary[when][how]
    for name, found in players.items():
        assert found["episodes"] == 4, name
        assert 0 <= found["accuracy"] <= 1, name
        assert 80 <= found["score"] <= 120, name  # two rounds, from 100 on
    assert (summary["expert"]["accuracy"], summary["expert"]["score"]) == (1.0, 120)
    assert list(summary["seconds"]) == [
        "start", "baseline random", "baseline expert", "demonstrations", "warm start",
        "saving", "engine start", "engine check", "evaluation before", "reinforcement",
        "evaluation after",
    ]  # fmt: skip
    assert all(seconds > 0 for seconds in summary["seconds"].values())


def test_delayed_effects_are_waited_for(whole_run):
    recorded = replay.open(whole_run)
    episodes = [e for e in recorded.episodes() if e.split == "train" and not e.outcome.void]
    turns = [turn for e in episodes for turn in recorded.episode(e.id).episode.turns]
    # A reply that is no action changes nothing, and its turn shows what the previous turn did.
    acted = [turn for turn in turns if turn.parse_error is None and turn.info["changed"]]
    waits = [turn.timings["act"] for turn in acted]
    assert len(waits) > 10
    assert min(waits) >= 0.05
    assert max(waits) >= 0.2


@pytest.mark.timeout(300)
def test_final_model_of_a_run_is_evaluated(whole_run):
    run = whole_run
    done = subprocess.run(
        [sys.executable, "-m", "agentrl", "eval", run, "eval.rings=null", "--episodes=2",
         "--greedy", "--json"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert Path(found["run"]).name.startswith("eval-model-phones-")
    assert found["episodes"] == 2
    greedy = {
        e["name"]: e["by_seed"]
        for e in map(json.loads, (run / "evaluations.jsonl").read_text().splitlines())
    }["after greedy"]
    games = replay.open(found["run"]).episodes()
    assert {str(game.seed): game.reward for game in games} == {
        str(game.seed): greedy[str(game.seed)]["reward"] for game in games
    }


def test_every_played_episode_is_recorded_with_its_frames(whole_run):
    run = whole_run
    recorded = replay.open(run)
    finished = [e for e in recorded.episodes() if not e.outcome.void]
    assert {e.split for e in finished} == {"demo", "train", "eval"}
    episode = recorded.episode(finished[-1].id).episode
    frame = recorded.frame(episode.turns[0].frames[0])
    assert frame.shape == (1280, 720, 3)
    assert frame.std() > 5


def per_token(episode, summary):
    """The recorded advantage of each turn for each of its sampled tokens."""
    pairs = zip(summary.advantages, episode.turns, strict=True)
    return [value for value, turn in pairs for _ in turn.reply_ids]


def test_what_was_sampled_is_what_is_trained(whole_run):
    run = whole_run
    recorded = replay.open(run)
    model_adapter = adapter_for(run / "start")
    episodes = [e for e in recorded.episodes() if e.split == "train" and not e.outcome.void]
    assert episodes
    for summary in episodes:
        episode = recorded.episode(summary.id).episode
        assert episode.outcome in (Outcome.TERMINATED, Outcome.TRUNCATED)
        samples = split_into_sequences(episode)
        assert len(samples) == len(episode.turns)  # window:1 starts over with every screen
        for turn, sample in zip(episode.turns, samples, strict=True):
            assert sample.token_ids == turn.prompt_ids + turn.reply_ids
            trained = [sample.token_ids[place] for place in sample.sampled_positions]
            assert tuple(trained) == turn.reply_ids
            assert not set(turn.reply_ids) & set(model_adapter.banned_token_ids)
            assert set(turn.reply_versions) == {summary.step - 1}


def test_engine_and_learner_agree_on_what_was_sampled(whole_run):
    run = whole_run
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["stage"] == "reinforcement"]
    assert len(steps) == 2
    assert max(step["learner/mismatch_max"] for step in steps) < 1e-3
    assert min(step["learner/mismatch_tokens"] for step in steps) > 100


@pytest.fixture(scope="module")
def remembered(adb_server, tmp_path_factory):
    """A step of the game that needs the whole conversation."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [*SMALL, "train.steps=1", "env.max_turns=4", "warm_start.steps=20"]
    settings += [f"run.dir={folder}", "run.name=memory", "warm_start.cache=null"]
    _run_to_the_end(command("number_game_memory", *settings))
    return folder / "memory"


@pytest.mark.timeout(600)
def test_whole_conversation_is_trained_as_the_engine_saw_it(remembered):
    recorded = replay.open(remembered)
    model_adapter = adapter_for(remembered / "start")
    episodes = [e for e in recorded.episodes() if e.split == "train" and not e.outcome.void]
    assert episodes
    for summary in episodes:
        turns = recorded.episode(summary.id).episode.turns
        assert len(turns) > 1
        for before, turn in itertools.pairwise(turns):
            prefix = before.prompt_ids + before.reply_ids
            assert turn.prompt_ids[: len(prefix)] == prefix
        episode = recorded.episode(summary.id).episode
        (sample,) = split_into_sequences(episode)
        assert sample.token_ids == turns[-1].prompt_ids + turns[-1].reply_ids
        trained = [sample.token_ids[place] for place in sample.sampled_positions]
        assert tuple(trained) == tuple(token for turn in turns for token in turn.reply_ids)
        pads = sum(token == model_adapter.image_token_id for token in sample.token_ids)
        assert pads == len(turns) * 15  # one screen of 3 x 5 patches to a turn


@pytest.mark.timeout(600)
def test_engine_and_learner_agree_over_a_whole_conversation(remembered):
    lines = [json.loads(line) for line in (remembered / "metrics.jsonl").read_text().splitlines()]
    (step,) = [line for line in lines if line["stage"] == "reinforcement"]
    assert step["learner/tokens"] > 0
    assert step["learner/mismatch_max"] < 1e-3
