"""Steps are played while others are learned, and never further ahead than the bound says."""

import asyncio
import json

import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.errors import WorldError
from agentrl.training.trainer import train
from agentrl.training.trainer.rollout_prefetch import RolloutPrefetcher


@pytest.mark.parametrize("lag", [0, 1, 3])
async def test_prefetching_stays_within_the_lag(lag):
    learned, begun = 0, list[tuple[int, int]]()

    async def play(step: int) -> int:
        begun.append((step, learned))
        await asyncio.sleep(0)
        return step

    ahead = RolloutPrefetcher(play, 1, 8, lag)
    for step in range(1, 9):
        assert await ahead.take() == step
        await asyncio.sleep(0.01)  # as long as it likes
        learned = step
        ahead.learned()
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
    assert await ahead.take() == 1
    with pytest.raises(WorldError, match="no phone"):
        await ahead.take()
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
