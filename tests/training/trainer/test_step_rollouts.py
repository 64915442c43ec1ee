"""A step replaces groups with zero advantage; prefetching stays within its bound."""

import asyncio
import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.config import Config
from agentrl.errors import WorldError
from agentrl.rollout.collector import CollectionProgress
from agentrl.training.env_seeds import training_seeds
from agentrl.training.sampling.task_pool import TaskSet
from agentrl.training.sampling.task_sampler import load_sampler
from agentrl.training.trainer import train
from agentrl.training.trainer.step_rollouts import RolloutPrefetcher, StepCollector
from agentrl.types import ExecutedAction
from tests.training.episodes import play


class Groups:
    """Rollouts whose siblings get equal rewards except on some seeds; one was void before."""

    def __init__(self, model_adapter, teaching):
        self.model_adapter, self.teaching, self.greedy = model_adapter, teaching, []

    async def collect(self, requests, player=None, greedy=False):
        if greedy:
            self.greedy += [request.seed for request in requests]
        return [self._played(request) for request in requests]

    def _played(self, request):
        earned = float(request.member) if request.seed in self.teaching else 1.0
        scored = play(self.model_adapter, request.seed, request.member)
        return replace(scored, rewards=(0.0, 0.0, earned))

    @property
    def progress(self):
        return CollectionProgress(episodes=4, turns=12, tokens=40, void=Counter(device_error=1))


def player(rollouts, *overrides):
    groups = ["rollout.groups=2", "rollout.group_size=2", "algorithm.sampling.filter_groups=true"]
    config = configuration.resolve(Config(), ["env.id=Toy-v0", *groups, *overrides])
    algorithm = load_algorithm(config.algorithm)
    seeds = [training_seeds(config.seed, config.rollout, number) for number in range(4)]
    sampler = load_sampler(
        config.sampling, [TaskSet(env="", weight=1.0, count=None)], config.rollout,
        run_seed=config.seed, folder=Path("nowhere"),
    )  # fmt: skip
    steps = StepCollector(
        config.rollout,
        algorithm,
        sampler,
        rollouts,
        lambda total, note: nullcontext(),
        asyncio.Lock(),
    )
    return steps, seeds


async def test_void_episodes_of_replaced_groups_are_counted(model_adapter):
    rollouts = Groups(model_adapter, set())
    steps, seeds = player(rollouts, "algorithm.sampling.refills=1")
    rollouts.teaching = {seeds[1], seeds[2]}
    played = await steps.collect_step(1)
    assert [group[0].episode.seed for group in played.groups] == seeds[1:3]
    assert played.dropped == 1
    assert (played.progress.episodes, played.progress.void["device_error"]) == (8, 2)
    assert played.greedy is None


class Chunks(Groups):
    """Rollouts whose episodes take two actions in each turn but the last, which is invalid."""

    def _played(self, request):
        scored = super()._played(request)
        one = ExecutedAction(action=1, reward=0.0, info={}, shown="")
        *turns, last = scored.episode.turns
        turns = (*(replace(turn, chunk=(one, one)) for turn in turns), last)
        return replace(scored, episode=replace(scored.episode, turns=turns))


async def test_the_number_of_actions_per_turn_is_a_metric_only_if_there_may_be_several(
    model_adapter,
):
    for kind, expected in ((Chunks, 4 / 3), (Groups, None)):
        steps, seeds = player(rollouts := kind(model_adapter, set()))
        rollouts.teaching = set(seeds)
        metrics = (await steps.collect_step(1)).metrics()
        assert metrics.get("rollout/actions_per_turn") == expected


async def test_only_the_groups_that_vary_most_are_trained_on(model_adapter):
    rollouts = Groups(model_adapter, set())
    steps, seeds = player(
        rollouts,
        "algorithm.sampling.filter_groups=false",
        "algorithm.sampling.keep_varied=0.5",
    )
    rollouts.teaching = {seeds[1]}  # returns 0 and 1; the other group's are 1 and 1
    played = await steps.collect_step(1)
    assert [group[0].episode.seed for group in played.groups] == [seeds[1]]
    assert len(played.played) == 2
    assert played.metrics()["rollout/left_out_groups"] == 1


async def test_greedy_policy_plays_the_seeds_of_the_kept_groups(model_adapter):
    rollouts = Groups(model_adapter, set())
    steps, seeds = player(rollouts, "algorithm.name=remax", "algorithm.sampling.refills=1")
    rollouts.teaching = {seeds[1], seeds[2]}
    played = await steps.collect_step(1)
    assert rollouts.greedy == seeds[1:3]
    assert len(played.greedy) == len(played.groups) == 2


@pytest.mark.parametrize("lag", [0, 1, 3])
async def test_prefetching_stays_within_the_lag(lag):
    learned, begun = 0, list[tuple[int, int]]()

    async def play(step: int) -> int:
        begun.append((step, learned))
        await asyncio.sleep(0)
        return step

    ahead = RolloutPrefetcher(play, 1, 8, lag)
    for step in range(1, 9):
        assert await ahead.next_step() == step
        await asyncio.sleep(0.01)  # as long as it likes
        learned = step
        ahead.mark_trained()
    assert [step for step, _ in begun] == list(range(1, 9))
    missing = [step - 1 - done for step, done in begun]
    assert max(missing) == lag
    await ahead.close()


async def test_a_failure_to_play_is_raised_in_its_own_step():
    async def play(step: int) -> int:
        if step == 2:
            raise WorldError("no phone is left")
        return step

    ahead = RolloutPrefetcher(play, 1, 3, 1)
    assert await ahead.next_step() == 1
    with pytest.raises(WorldError, match="no phone"):
        await ahead.next_step()
    await ahead.close()


async def test_prefetching_ends_with_the_job():
    ended = asyncio.Event()

    async def play(step: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    ahead = RolloutPrefetcher(play, 1, 3, 1)
    await asyncio.sleep(0)
    await ahead.close()
    assert ended.is_set()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_episodes_continue_with_new_weights(tmp_path):
    settings = [
        f"run.dir={tmp_path}", "run.name=it", "train.mode=async", "train.lag=1", "train.steps=4",
        "rollout.engine=hf", "rollout.launcher=local", "warm_start=null", "eval.episodes=2",
        "eval.episodes_during=2", "eval.every=2", "eval.baselines=[]", "logging=[file]",
        "env.max_turns=12", "rollout.groups=2", "rollout.group_size=4",
        "rollout.concurrency=1",  # so that playing takes longer than learning
    ]  # fmt: skip
    run = train.train(configuration.load("frozen_lake", settings)).path
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["stage"] == "reinforcement"]
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    assert steps[0]["learner/lag"] == 0
    assert all(0 < line["learner/lag"] <= 1 for line in steps[1:])
    assert all(abs(line.get("learner/mismatch_k1", 0)) < 1e-4 for line in steps)
    recorded = replay.open(run)
    played = [
        recorded.episode(s.id).episode for s in recorded.episodes(replay.Filter(split="train"))
    ]
    versions = [{v for turn in one.turns for v in turn.reply_versions} for one in played]
    assert any(len(found) == 2 for found in versions)
    for one, found in zip(played, versions, strict=True):
        own = [min(turn.reply_versions) for turn in one.turns if turn.reply_versions]
        assert own == sorted(own)
        assert max(found) - min(found) <= 1
