"""Rollouts in real Ray actors: who plays what, and what becomes of those that die or hang."""

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from agentrl.cluster import ray_cluster
from agentrl.config import Config, DevicesConfig, EnvConfig, RolloutConfig, from_dict, load
from agentrl.errors import WorldError
from agentrl.extension_points import LOGGER
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_worker_group import (
    RolloutWorkerGroup,
    collect_deadline_s,
    open_rollouts,
)

slow = pytest.mark.slow
PATIENCE_S = 60  # for what takes a second or two on a machine with nothing else to do


@pytest.fixture(scope="module")
def two_actors(adb_server, tiny_vlm, tmp_path_factory):
    """Rollouts in two actors that share two phones, and the folder of what they record."""
    run = tmp_path_factory.mktemp("run")
    yield asyncio.run(open_rollouts(number_game(), tiny_vlm, run)), run
    ray_cluster.leave_cluster()


def countdown(**fault):
    config = Config()
    config.env = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs=fault,
        translator_kwargs={"names": ["down", "up"]},
    )
    return in_two_actors(config)


def number_game():
    config = Config(devices=DevicesConfig(source="virtual:2", effect_delay_ms=[0, 0]))
    config.model.image_size = [84, 140]
    return in_two_actors(config)


def in_two_actors(config):
    config.run.search_path = [str(Path(__file__).parents[2])]
    config.rollout.launcher, config.rollout.actors = "ray", 2
    return config


async def processes_of(rollouts):
    """Of each actor, last who keeps the phones: its own process, then its children's."""
    actors = [*rollouts._actors, *(phones.actor for phones in rollouts._phones.values())]
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
@pytest.mark.adb
async def test_groups_are_distributed_and_return_in_the_order_of_their_requests(
    two_actors,
):
    rollouts, run = two_actors
    requests = requests_of_step("train", 1, [5, 6, 7], 2)
    episodes = await rollouts.collect(requests, "expert")
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    assert [e.episode.seed for e in episodes] == [t.seed for t in requests]
    assert (await rollouts.get_progress()).episodes == len(requests)
    for number in (0, 1):
        index = run / "episodes" / f"index-rollout{number}.jsonl"
        played = {json.loads(line)["id"] for line in index.read_text().splitlines()}
        assert played == {t.id for t in requests if t.group % 2 == number}


@slow
@pytest.mark.adb
async def test_actors_switch_to_an_environment_without_phones_and_back(two_actors, tmp_path):
    rollouts, run = two_actors
    before = await processes_of(rollouts)
    await rollouts.switch(countdown(length=2), tmp_path)
    requests = requests_of_step("eval", 1, [5, 6], 1)
    episodes = await rollouts.collect(requests, "player")
    assert [e.episode.reset_info["left"] for e in episodes] == [2, 2]
    for number in (0, 1):
        assert (tmp_path / "episodes" / f"index-rollout{number}.jsonl").read_text()
    await ended(before[2])
    await rollouts.switch(number_game(), run)
    assert [of_one[0] for of_one in (await processes_of(rollouts))[:2]] == [
        of_one[0] for of_one in before[:2]
    ]


@slow
@pytest.mark.adb
async def test_killed_actor_ends_the_collection_at_once_and_leaves_no_process(two_actors):
    rollouts, _ = two_actors
    processes = await processes_of(rollouts)
    assert [len(of_one) for of_one in processes] == [1, 1, 2], "the phones are one process"
    requests = requests_of_step("train", 2, range(50), 8)
    before = (await rollouts.get_progress()).episodes
    collecting = asyncio.create_task(rollouts.collect(requests, "expert"))
    async with asyncio.timeout(PATIENCE_S):
        while (await rollouts.get_progress()).episodes <= before:
            await asyncio.sleep(0.05)
    os.kill(processes[1][0], signal.SIGKILL)
    with pytest.raises(WorldError, match="rollout actor 1 died") as caught:
        async with asyncio.timeout(PATIENCE_S):
            await collecting
    assert len(str(caught.value).splitlines()) == 1
    async with asyncio.timeout(PATIENCE_S):
        await rollouts.close()
    await ended(chain.from_iterable(processes))


@slow
def test_a_user_s_class_is_found_inside_an_actor(tmp_path):
    (tmp_path / "logger_of_actors.py").write_text(
        "from agentrl.training.monitoring.logger import Logger\n\n\n"
        "class Mine(Logger):\n    def log(self, stage, step, metrics):\n        pass\n"
    )
    (tmp_path / "job.yaml").write_text("logging: ['logger_of_actors.py:Mine']\n")
    tree = load(tmp_path / "job.yaml").to_dict()
    ray_cluster.join_cluster()
    try:
        import ray

        @ray.remote
        class Actor:
            def resolve(self, tree):
                config = from_dict(tree)
                return LOGGER.resolve(config.logging[0]).__name__, os.getpid()

        name, pid = ray.get(Actor.remote().resolve.remote(tree), timeout=PATIENCE_S)
    finally:
        ray_cluster.leave_cluster()
    assert name == "Mine"
    assert pid != os.getpid()


@slow
async def test_hanging_actor_is_abandoned_at_its_deadline_and_leaves_no_process(tiny_vlm, tmp_path):
    rollouts = await open_rollouts(countdown(), tiny_vlm, tmp_path)
    processes = await processes_of(rollouts)
    hasty = replace(
        countdown().rollout,
        start_deadline_s=0.5, deadline_s=0.5, reward_deadline_s=0.5, max_refills=0,
    )  # fmt: skip
    impatient = RolloutWorkerGroup(
        rollouts._actors, hasty, PATIENCE_S, {}, rollouts._reservation, rollouts._run,
        owns_reservation=False, files=None, folder=None,
    )  # fmt: skip
    os.kill(processes[1][0], signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(WorldError, match=r"rollout actor 1 did not answer within 1\.5 s"):
        await impatient.collect(requests_of_step("train", 1, [5, 6], 1), "player")
    assert 1.5 <= time.monotonic() - started < PATIENCE_S
    await impatient.close()
    ray_cluster.leave_cluster()
    await ended(chain.from_iterable(processes))


def test_deadline_of_a_collection_depends_on_concurrency():
    settings = RolloutConfig()
    alone, together = (collect_deadline_s(100, n, settings) for n in (1, 32))
    assert together == 600 + (4 + 8) * (600 + 60)  # start; four waves, eight refills; scoring
    assert together < 2.5 * 3600 < alone


def test_deadline_of_a_collection_allows_all_refills_for_one_request():
    settings = RolloutConfig(max_refills=3, deadline_s=10, reward_deadline_s=0, start_deadline_s=0)
    assert collect_deadline_s(4, 4, settings) >= (1 + 3) * 10
