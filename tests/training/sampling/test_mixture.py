"""Several environments in one job: each group in one of them, each evaluated, resumed exactly."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training.demonstrations.demonstration_dataset import DemonstrationDataset
from agentrl.training.evaluation.held_out_evaluation import play_held_out
from agentrl.training.offline import warm_start
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.training.trainer.train import train

JOB = {
    "env": {
        "id": "Sokoban-v0",
        "kwargs": {"size": 5, "min_moves": 2, "max_steps": 6, "split": "train"},
        "translator_kwargs": {"instruct": False},
        "max_turns": 6,
        "history": "window:1",
    },
    "mixture": [
        {"name": "easy", "env": {"kwargs": {"min_moves": 2, "max_moves": 2}}},
        {"name": "hard", "weight": 2, "env": {"kwargs": {"min_moves": 5}}},
        {
            "name": "sums",
            "env": {"id": "QA-v0", "kwargs": {"data": "arithmetic", "split": "train"}},
            "eval_kwargs": {"split": "eval"},
        },
    ],
    "eval": {
        "kwargs": {"split": "eval", "min_moves": 3, "cell": 9}, "episodes": 2, "episodes_during": 2,
    },
    "rollout": {
        "engine": "hf", "launcher": "local", "groups": 5, "group_size": 2, "concurrency": 10,
        "max_new_tokens": 6, "max_context": 300,
    },
}  # fmt: skip


def job(*overrides, **sections):
    return configuration.resolve(configuration.from_dict({**JOB, **sections}), overrides)


def test_each_environment_is_a_job_of_its_own():
    jobs = job("rewards=[{function: 'agentrl.rewards.sokoban:format'}]").environments()
    assert jobs["easy"].env.kwargs == {**JOB["env"]["kwargs"], "max_moves": 2}
    assert (jobs["easy"].env.history, jobs["sums"].env.history) == ("window:1", None)
    assert (len(jobs["easy"].rewards), len(jobs["sums"].rewards)) == (1, 0)
    # A level is evaluated on the level that it is.
    assert jobs["hard"].eval.kwargs == {"split": "eval", "cell": 9}
    assert jobs["sums"].eval.kwargs == {"split": "eval"}


def test_a_mixture_survives_being_saved():
    config = job()
    assert configuration.from_dict(config.to_dict()) == config
    assert configuration.from_dict(configuration.changed_settings(config)) == config


async def test_episodes_are_played_in_the_environments_that_requests_name():
    worker = RolloutWorker(plan_rollouts(job()), None, None)
    try:
        await worker.start()
        names = ["easy", "hard", "sums", ""]
        requests = requests_of_step("train", 1, [11, 12, 13, 14], 2, envs=names)
        played = await worker.collect(requests, player="random")
        held_out = await play_held_out(
            worker, [3, 4], player="expert", mixture={"easy": 0.25, "hard": 0.5, "sums": 0.25}
        )
    finally:
        await worker.close()
    shown = [(e.episode.env_id, e.episode.reset_info.get("environment")) for e in played]
    sokoban = "Sokoban-v0"
    assert shown[::2] == shown[1::2]
    assert shown[::2] == [(sokoban, "easy"), (sokoban, "hard"), ("QA-v0", "sums"), (sokoban, None)]
    optimal = [e.episode.reset_info["optimal"] for e in played if e.episode.env_id == sokoban]
    assert optimal[:2] == [2, 2]
    assert min(optimal[2:4]) >= 5
    found = held_out.metrics
    assert held_out.episodes == 6
    assert found["env/sums/accuracy"] == 1
    rewards = [found[f"env/{name}/reward"] for name in names[:3]]
    assert found["reward"] == pytest.approx(np.average(rewards, weights=[1, 2, 1]))
    by_seed = [one["reward"] for one in held_out.by_seed.values()]
    assert sum(by_seed) / 2 == pytest.approx(found["reward"])


async def test_a_warm_start_demonstrates_and_relabels_all_by_weight(tiny_vlm):
    config = job("model.tiny={}", "rollout.max_new_tokens=40", "warm_start={episodes: 60}")
    warm, weights = replace(config.warm_start, player="expert"), config.mixture_weights()
    worker = RolloutWorker(plan_rollouts(config), tiny_vlm, None)
    try:
        await worker.start()
        demonstrations = await warm_start.play_demonstrations(warm, weights, 0, worker)
    finally:
        await worker.close()
    names = [one.episode.reset_info["environment"] for one in demonstrations]
    assert 20 <= names.count("hard") <= 40
    encoder = open_encoder(config.model, tiny_vlm)
    envs = {name: one.env for name, one in config.environments().items()}
    players = {name: load_player(resolve_env(one), "expert") for name, one in envs.items()}
    dataset = DemonstrationDataset(demonstrations, warm, players, encoder, seed=0)
    texts = [encoder.text(sample.token_ids) for sample in dataset.draw(120)]
    sums = [text for text in texts if "What is " in text]
    assert len(sums) > 5
    assert all("<action>" in text for text in texts if text not in sums)
    for text in sums:
        assert re.search(r"What is (.+)\?(?s:.*)<think>\1 = (-?\d+)</think><answer>\2<", text)


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        ({"env": {"kwargs": {"num_boxes": 2}}}, r"mixture, one: env.kwargs.num_boxes"),
        ({"env": {"id": "Snake-v0"}}, "is played on phones|cannot be mixed with Sokoban-v0"),
        ({"env": {"prompt": "x.jinja"}}, r"mixture\[0\].env.prompt=x.jinja"),
        ({"weight": 0}, r"mixture\[0\].weight=0"),
    ],
)
def test_a_mixture_that_cannot_be_played_is_refused_before_any_work(mixture, message):
    with pytest.raises(ConfigError, match=message):
        check_scripted_play(plan_rollouts(job(mixture=[{"name": "one", **mixture}])))


def chosen(run, step):
    """Environment and seed of each group of a step, after checking that its members share both."""
    groups = {}
    recorded = replay.open(run)
    for summary in recorded.episodes():
        if (summary.split, summary.step) == ("train", step):
            episode = recorded.episode(summary.id).episode
            key = (episode.reset_info["environment"], episode.seed)
            groups.setdefault(summary.group, set()).add(key)
    assert all(len(keys) == 1 for keys in groups.values())
    return [next(iter(keys)) for _, keys in sorted(groups.items())]


REWARD = """
def lucky(episode):
    return [float(sum(turn.reply_ids) % 3 == 0) for turn in episode.turns]
"""
SAMPLERS = {
    "solve_rate": {"name": "solve_rate"},
    "success_replay": {
        "name": "success_replay", "tasks": "solve_rate", "success_at": 1.0, "revisit": 0.5
    },
}  # fmt: skip


def reported(run):
    """By step: the loss, what was sampled and what was replayed."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {}
    for row in rows:
        if row["stage"] == "reinforcement":
            parts = ("learner/loss", "sampling/", "replay/", "env/", "train/")
            found[row["step"]] = {k: v for k, v in row.items() if k.startswith(parts)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_killed_job_goes_on_with_the_same_tasks_and_episodes(tmp_path, sampler):
    (tmp_path / "lucky.py").write_text(REWARD)
    rewards = [{"function": f"{tmp_path}/lucky.py:lucky"}]
    mixture = [*JOB["mixture"][:2], {**JOB["mixture"][2], "rewards": rewards}]
    config = job(
        f"run.dir={tmp_path}", "run.name=it", "run.frames=none", "algorithm=grpo",
        "model.tiny={layers: 1, hidden: 32, heads: 1, kv_heads: 1}",
        "train.steps=6", "checkpoint.every=3", "checkpoint.keep=3", "eval.every=0",
        "eval.baselines=[]", "logging=[file]", "env.kwargs.max_steps=2", "env.max_turns=2",
        sampling=SAMPLERS[sampler], rewards=rewards, mixture=mixture,
    )  # fmt: skip
    run = train(config).path
    played = {step: chosen(run, step) for step in (4, 5, 6)}
    before, last = reported(run), run / "checkpoints/step-00006"
    state = json.loads((last / "trainer.json").read_text())["sampler"]
    for row in before.values():
        assert sum(row.get(f"env/{name}/groups", 0) for name in ("easy", "hard", "sums")) == 5
    if sampler == "success_replay":
        assert sum(row["replay/episodes"] for row in before.values()) > 0
        files = {file.stem for file in (run / "sampler").glob("*.npz")}
        assert {entry[0] for entry in state["buffer"]} <= files
    shutil.rmtree(last)  # as if it had been killed before
    shutil.rmtree(run / "model")
    (run / "summary.json").unlink()
    train(config, resume=run)
    assert {step: chosen(run, step) for step in (4, 5, 6)} == played
    assert json.loads((last / "trainer.json").read_text())["sampler"] == state
    assert reported(run) == before
    summary = json.loads((run / "summary.json").read_text())
    assert "env/sums/accuracy" in summary["after"]["sampled"]
