"""Rollouts in real Ray actors: which actor plays what, and what happens if one dies or hangs."""

import asyncio
import json
import os
import re
import signal
from itertools import chain
from pathlib import Path

import pytest
import pytest_asyncio

from agentrl import replay
from agentrl.cluster import ray_cluster
from agentrl.config import (
    Config,
    DeadlinesConfig,
    DevicesConfig,
    EnvConfig,
    RolloutConfig,
    from_dict,
    load,
)
from agentrl.errors import WorkerLost
from agentrl.extension_points import LOGGER
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.open_rollouts import open_rollouts
from agentrl.rollout.workers.worker_supervisor import play_deadline_s

slow = pytest.mark.slow
in_one_loop = pytest.mark.asyncio(loop_scope="module")
PATIENCE_S = 60  # for steps that take a second or two on an idle machine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two_actors(adb_server, tiny_vlm, tmp_path_factory):
    """Start rollouts in two actors that share two phones; also return their run's folder."""
    run = tmp_path_factory.mktemp("run")
    rollouts = await open_rollouts(plan_rollouts(number_game()), tiny_vlm, run)
    yield rollouts, run
    await rollouts.close()
    ray_cluster.leave_cluster()


def countdown(settings=None, **kwargs):
    config = Config(rollout=RolloutConfig(**settings or {}))
    config.env = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs=kwargs,
        translator_kwargs={"names": ["down", "up"]},
    )
    return in_two_actors(config)


def number_game():
    config = Config(
        devices=DevicesConfig(
            source="virtual:2",
            tempo="quick",
            lease_s=6,  # until the phone of an actor that has died is free again
            deadlines=DeadlinesConfig(command_s=5),
        )
    )
    config.model.image_size = [84, 140]
    return in_two_actors(config)


def in_two_actors(config):
    config.run.search_path = [str(Path(__file__).parents[3])]
    config.rollout.launcher, config.rollout.actors = "ray", 2
    return config


def recorded(run):
    """Return the ids that each actor has recorded, in order."""
    files = [run / "episodes" / f"index-rollout{number}.jsonl" for number in (0, 1)]
    return [
        [json.loads(line)["id"] for line in file.read_text().splitlines()] if file.exists() else []
        for file in files
    ]


async def collect_and(rollouts, requests, player, act):
    """Collect, and do something after the first episodes."""
    collecting = asyncio.create_task(rollouts.collect(requests, player))
    async with asyncio.timeout(PATIENCE_S):
        while rollouts.progress.episodes in (0, len(requests)):
            assert not collecting.done(), collecting.result()
            await asyncio.sleep(0.02)
    act()
    async with asyncio.timeout(PATIENCE_S):
        return await collecting


async def processes_of(rollouts):
    """Return each actor's process and its children, with the owner of the phones last."""
    phones = rollouts._starter.phones.values()
    actors = [*(w.actor for w in rollouts._workers.engines), *(pool.actor for pool in phones)]
    own = [await actor.__ray_call__.remote(lambda self: os.getpid()) for actor in actors]
    return [[pid, *children_of(pid)] for pid in own]


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return children + [later for child in children for later in children_of(child)]


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def ended(pids):
    pids = list(pids)
    async with asyncio.timeout(PATIENCE_S):
        while any(map(runs, pids)):
            await asyncio.sleep(0.05)


@slow
@in_one_loop
@pytest.mark.adb
async def test_groups_are_distributed_and_return_in_the_order_of_their_requests(
    two_actors,
):
    rollouts, run = two_actors
    requests = requests_of_step("train", 1, [5, 6, 7], 2)
    episodes = await rollouts.collect(requests, "expert")
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    assert [e.episode.seed for e in episodes] == [t.seed for t in requests]
    assert rollouts.progress.episodes == len(requests)
    of_actor = recorded(run)
    assert sorted(of_actor[0] + of_actor[1]) == sorted(t.id for t in requests)
    for number in (0, 1):
        assert {t.id for t in requests if t.group == number} <= {*of_actor[number]}


@slow
@in_one_loop
@pytest.mark.adb
async def test_an_actor_that_answers_is_waited_for(two_actors, monkeypatch):
    """For example, episodes may wait long for batches of the hf engine, which does not count."""
    rollouts, _ = two_actors
    monkeypatch.setattr(
        "agentrl.rollout.workers.worker_supervisor.play_deadline_s", lambda *_: 0.01
    )
    episodes = await rollouts.collect(requests_of_step("train", 9, range(2), 2), "expert")
    assert not any(episode.episode.outcome.void for episode in episodes)
    assert rollouts.worker_metrics() == {"workers": 2.0, "replaced_workers": 0.0}


@slow
@in_one_loop
@pytest.mark.adb
async def test_actors_switch_to_an_environment_without_phones_and_back(two_actors, tmp_path):
    rollouts, run = two_actors
    before = await processes_of(rollouts)
    await rollouts.switch(plan_rollouts(countdown(length=2)), tmp_path)
    requests = requests_of_step("eval", 1, [5, 6], 1)
    episodes = await rollouts.collect(requests, "player")
    assert [e.episode.reset_info["left"] for e in episodes] == [2, 2]
    for number in (0, 1):
        assert (tmp_path / "episodes" / f"index-rollout{number}.jsonl").read_text()
    await ended(before[2])
    await rollouts.switch(plan_rollouts(number_game()), run)
    assert [of_one[0] for of_one in (await processes_of(rollouts))[:2]] == [
        of_one[0] for of_one in before[:2]
    ]


@slow
@in_one_loop
@pytest.mark.adb
async def test_killed_actor_is_replaced_and_others_play_its_episodes(two_actors, caplog):
    rollouts, run = two_actors
    processes = await processes_of(rollouts)
    assert [len(of_one) for of_one in processes] == [1, 1, 3], "phones, and who removes them"
    requests = requests_of_step("train", 2, range(4), 3)
    episodes = await collect_and(
        rollouts, requests, "expert", lambda: os.kill(processes[1][0], signal.SIGKILL)
    )
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    assert not any(e.episode.outcome.void for e in episodes)
    await ended(processes[1])
    played = [row.id for row in replay.open(run).episodes() if row.step == 2]
    assert sorted(played) == sorted(t.id for t in requests)
    assert re.search(r"rollout worker 1 on [\d.]+ is lost: rollout worker 1 died", caplog.text)
    async with asyncio.timeout(PATIENCE_S):
        await rollouts._workers.engines[1].replacement
    assert rollouts.worker_metrics() == {"workers": 2.0, "replaced_workers": 1.0}
    requests = requests_of_step("train", 3, range(4), 2)
    await rollouts.collect(requests, "expert")
    assert {t.id for t in requests if t.group == 1} <= {*recorded(run)[1]}


@slow
@in_one_loop
@pytest.mark.adb
async def test_the_workers_of_a_killed_phone_pool_live_on_with_a_new_one(two_actors, caplog):
    rollouts, _ = two_actors
    before = await processes_of(rollouts)
    requests = requests_of_step("train", 4, range(4), 3)
    episodes = await collect_and(
        rollouts, requests, "expert", lambda: os.kill(before[2][0], signal.SIGKILL)
    )
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    assert not any(e.episode.outcome.void for e in episodes)
    await ended(before[2])
    after = await processes_of(rollouts)
    assert [of_one[0] for of_one in after[:2]] == [of_one[0] for of_one in before[:2]]
    assert "uses a new phone pool: the shared phone pool died" in caplog.text


@slow
@in_one_loop
async def test_an_actor_that_has_nothing_left_plays_for_a_slow_one(two_actors, tmp_path):
    rollouts, _ = two_actors
    await rollouts.switch(
        plan_rollouts(countdown({"concurrency": 2}, pause_s=0.4, every=10)), tmp_path
    )
    requests = requests_of_step("train", 2, [10, 1, 2], 4)
    await rollouts.collect(requests, "player")
    of_actor = [{t.group for t in requests if t.id in ids} for ids in recorded(tmp_path)]
    # With equal shares, the first actor would play all slow episodes, two seconds each.
    assert of_actor == [{0}, {0, 1, 2}]


@slow
@in_one_loop
async def test_all_actors_may_die_until_their_restarts_are_used_up(two_actors, tmp_path):
    rollouts, _ = two_actors
    await rollouts.switch(
        plan_rollouts(countdown({"max_worker_restarts": 3}, pause_s=0.02)), tmp_path
    )
    requests = requests_of_step("train", 1, range(25), 4)
    processes = await processes_of(rollouts)

    def kill_both():
        for own, *_ in processes:
            os.kill(own, signal.SIGKILL)

    episodes = await collect_and(rollouts, requests, "player", kill_both)
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    await asyncio.gather(*(w.replacement for w in rollouts._workers.engines))
    await rollouts.switch(
        plan_rollouts(countdown({"max_worker_restarts": 0}, pause_s=0.02)), tmp_path
    )
    processes = await processes_of(rollouts)
    with pytest.raises(WorkerLost, match=r"no rollout worker can play: .*0 on .* died") as e:
        await collect_and(rollouts, requests, "player", kill_both)
    assert len(str(e.value).splitlines()) == 1
    await ended(chain.from_iterable(processes))


@slow
def test_a_user_s_class_is_found_inside_an_actor(two_actors, tmp_path):
    (tmp_path / "logger_of_actors.py").write_text(
        "from agentrl.training.monitoring.logger import Logger\n\n\n"
        "class Mine(Logger):\n    def log(self, stage, step, metrics):\n        pass\n"
    )
    (tmp_path / "job.yaml").write_text("logging: ['logger_of_actors.py:Mine']\n")
    tree = load(tmp_path / "job.yaml").to_dict()
    ray = ray_cluster.join_cluster()

    @ray.remote
    class Actor:
        def resolve(self, tree):
            config = from_dict(tree)
            return LOGGER.resolve(config.logging[0]).__name__, os.getpid()

    name, pid = ray.get(Actor.remote().resolve.remote(tree), timeout=PATIENCE_S)
    assert name == "Mine"
    assert pid != os.getpid()


@slow
@in_one_loop
async def test_an_actor_that_hangs_is_replaced_and_gets_the_current_weights(
    two_actors, tiny_vlm, tmp_path
):
    config = countdown({"engine": "hf", "max_new_tokens": 2, "concurrency": 2})
    config.env.max_turns = 2
    rollouts = await open_rollouts(plan_rollouts(config), tiny_vlm, tmp_path)
    await rollouts.engines.start()
    weights = tiny_vlm / "model.safetensors"
    await rollouts.engines.load_weights(weights, 1)
    processes = await processes_of(rollouts)
    os.kill(processes[1][0], signal.SIGSTOP)
    rollouts._starter.plan.settings.rollout.start_deadline_s = 10  # for an actor that plays already
    await rollouts.engines.load_weights(weights, 2)
    rollouts._starter.plan.settings.rollout.start_deadline_s = RolloutConfig().start_deadline_s
    assert rollouts.worker_metrics() == {"workers": 1.0, "replaced_workers": 0.0}
    await ended(processes[1])
    async with asyncio.timeout(2 * PATIENCE_S):
        await rollouts._workers.engines[1].replacement
    requests = requests_of_step("train", 2, range(2), 2)
    episodes = await rollouts.collect(requests)
    versions = {v for e in episodes for turn in e.episode.turns for v in turn.reply_versions}
    assert versions == {2}
    assert {t.id for t in requests if t.group == 1} & {*recorded(tmp_path)[1]}
    processes = await processes_of(rollouts)
    await rollouts.close()
    await ended(chain.from_iterable(processes))


def test_deadline_of_an_episode_allows_for_those_that_hold_its_phone():
    settings = RolloutConfig()
    assert play_deadline_s(8, 8, settings) == 600 + (600 + 60)  # start; episode and scoring
    assert play_deadline_s(8, 3, settings) == 600 + 3 * (600 + 60)
