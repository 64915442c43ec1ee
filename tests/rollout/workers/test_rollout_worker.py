"""Whole collections with real phones, adb, environments and recorder, but without a model."""

import asyncio
import itertools
import os
import signal
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import minari
import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.algorithms.core.trajectories import build_trajectories
from agentrl.config import (
    Config,
    DeadlinesConfig,
    DevicesConfig,
    EnvConfig,
    HorizonConfig,
    MixtureConfig,
    RewardConfig,
    StartConfig,
    parse_history,
)
from agentrl.devices.adb import find_adb
from agentrl.errors import ConfigError, PoolEmpty, RewardError
from agentrl.replay import minari_export
from agentrl.replay.tables_export import rows
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.runs.run_folder import RunFolder
from agentrl.text.formatting import encodable
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.types import Outcome, TruncatedBy
from agentrl.viewer.export import html_pages
from virtual_phone import spawn

TICKETS = requests_of_step("train", 1, [5, 6], 8)
"""So many that a phone that fails is given time to do so three times."""


def number_game(source, rounds=5):
    config = Config(env=EnvConfig(history="window:1", kwargs={"rounds": rounds}))
    config.model.image_size = [84, 140]
    config.devices = DevicesConfig(
        source=source,
        tempo="quick",
        deadlines=DeadlinesConfig(connect_s=1.0, settle_s=1.0),
        patience_s=0,
    )
    config.rewards = [RewardConfig(function="agentrl.rewards.number_game:outcome")]
    config.rollout.concurrency = 2
    return config


async def collect(config, folder, run, meanwhile=None, requests=TICKETS):
    """Collect episodes; return them, the counts, and the pool's own statistics."""
    rollouts = RolloutWorker(plan_rollouts(config), folder, run)
    await rollouts.start()
    try:
        collecting = asyncio.create_task(rollouts.collect(requests, "expert"))
        if meanwhile is not None:
            await meanwhile(rollouts.env_pool.pool)
        episodes = await collecting
        pool = getattr(rollouts.env_pool, "pool", None)
        return episodes, rollouts.progress, pool and pool.stats()
    finally:
        await rollouts.close()


async def breaking(broken, pool):
    """Break the first phone in the middle of an episode."""
    async with asyncio.timeout(30):
        while pool.stats()[0].busy_s < 0.3:
            await asyncio.sleep(0.005)
    await asyncio.to_thread(broken, pool.serials[0])


def fault(name, value, serial):
    """Set a fault; ignore the exit code, which a phone that goes offline never returns."""
    command = [find_adb(), "-s", serial, "shell", "setprop", f"debug.agentrl.fault.{name}", value]
    subprocess.run(command, check=False, capture_output=True, timeout=30)


def check_the_second_phone_plays_for_both(run, played, cause, times, requests=TICKETS):
    """Check that all requests were played and the first phone's failures were recorded."""
    episodes, progress, (first, second) = played
    expected = [(t.seed, t.group_id, t.member) for t in requests]
    assert [(e.episode.seed, e.episode.group, e.episode.member) for e in episodes] == expected
    assert all(e.episode.outcome is Outcome.TERMINATED and e.reward > 0 for e in episodes)

    void = [s for s in replay.open(run).episodes() if s.outcome.void]
    assert {s.outcome for s in void} == {Outcome.DEVICE_ERROR}
    assert all(s.error.startswith(cause) and s.device == first.serial for s in void)
    assert all((s.reward, s.components, s.advantages) == (0, {}, None) for s in void)
    assert all(not any(s.rewards) for s in void)

    assert progress.void == {cause: len(void)}
    assert progress.episodes == len(requests) + len(void)
    assert first.failures == len(void) == times  # it is not lent again
    assert (first.quarantined, second.failures, second.quarantined) == (True, 0, False)


@pytest.mark.quick(1)
@pytest.mark.adb
@pytest.mark.parametrize(
    ("name", "value", "cause", "times"),
    [
        ("offline_s", "inf", "DeviceOffline", 1),
        ("capture", "black", "CaptureError", 3),  # it answers every probe
    ],
)
async def test_phone_that_fails_voids_its_episodes_and_the_others_play_them(
    adb_server, tiny_vlm, tmp_path, name, value, cause, times
):
    broken = partial(breaking, partial(fault, name, value))
    config = number_game("virtual:2", rounds=10)  # the failures must not outlast the collection
    played = await collect(config, tiny_vlm, tmp_path, broken)
    check_the_second_phone_plays_for_both(tmp_path, played, cause, times)


@pytest.mark.slow
@pytest.mark.adb
async def test_phone_whose_process_is_killed_voids_its_episodes_and_the_others_play_them(
    adb_server, tiny_vlm, tmp_path
):
    apps = ["agentrl.envs.android.number_game.app:NumberGameApp"]
    with (
        spawn(1, apps, tempo="quick") as one,
        spawn(1, apps, tempo="quick") as other,
    ):
        config = number_game([*one.serials, *other.serials], rounds=10)
        broken = partial(breaking, lambda serial: os.kill(one.pid, signal.SIGKILL))
        requests = TICKETS[:8]
        played = await collect(config, tiny_vlm, tmp_path, broken, requests)
    check_the_second_phone_plays_for_both(tmp_path, played, "DeviceOffline", 1, requests)


@pytest.mark.adb
async def test_last_phone_that_fails_ends_the_collection_and_says_why(
    adb_server, tiny_vlm, tmp_path
):
    broken = partial(breaking, partial(fault, "offline_s", "inf"))
    with pytest.raises(PoolEmpty, match=r"1 in quarantine.*Last failure: .*DeviceOffline"):
        await collect(number_game("virtual:1", rounds=10), tiny_vlm, tmp_path, broken)
    assert [s.outcome for s in replay.open(tmp_path).episodes()[-1:]] == [Outcome.DEVICE_ERROR]


@pytest.mark.adb
async def test_phone_connected_during_a_collection_is_used(adb_server, tiny_vlm, tmp_path):
    with spawn(2, ["agentrl.envs.android.number_game.app:NumberGameApp"], tempo="quick") as phones:
        first, second = phones.serials
        for another in adb_server.devices():  # such as a phone of a failed test
            adb_server.disconnect(another)
        adb_server.connect(first)

        async def connect(pool):
            async with asyncio.timeout(30):
                while pool.stats()[0].busy_s < 0.3:
                    await asyncio.sleep(0.005)
            assert second not in pool.serials
            await asyncio.to_thread(adb_server.connect, second)

        config = number_game("connected", rounds=10)
        config.devices.capture, config.devices.input = "raw", "shell"
        played = await collect(config, tiny_vlm, tmp_path, connect, TICKETS[:8])
        episodes, progress, stats = played
        for serial in phones.serials:
            adb_server.disconnect(serial)
    assert {first, second} <= {e.episode.device for e in episodes}
    assert not progress.void
    assert next(row for row in stats if row.serial == second).leases > 0


async def test_environment_that_hangs_voids_its_recorded_episodes(tiny_vlm, tmp_path):
    """Every sixth seed hangs: one of two groups, despite its refills."""
    config = Config()
    config.env = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs={"fault": "hang", "every": 6},
        translator_kwargs={"names": ["down", "up"]},
    )
    config.rollout.deadline_s, config.rollout.max_refills = 0.5, 2
    rollouts = RolloutWorker(plan_rollouts(config), tiny_vlm, tmp_path)
    await rollouts.start()
    episodes = await rollouts.collect(TICKETS, "player")
    progress = rollouts.progress
    await rollouts.close()

    assert [e.episode.outcome.void for e in episodes] == [e.episode.seed == 6 for e in episodes]
    void = [s for s in replay.open(tmp_path).episodes() if s.outcome.void]
    error = (
        "not finished within 0.5 s (rollout.deadline_s), while waiting for "
        "tests.rollout.games:Countdown-v0.step() in turn 3"
    )
    assert {(s.outcome, s.error) for s in void} == {(Outcome.TIMEOUT, error)}
    assert progress.void == {"timeout": len(void)} == {"timeout": 8 + 2}
    assert all(not any(s.rewards) for s in void)


async def test_texts_for_openrlhfs_functions_have_the_models_chat_format(tiny_vlm) -> None:
    config = Config(
        env=EnvConfig(
            id="tests.rollout.games:Countdown-v0",
            kwargs={"length": 1},
            translator_kwargs={"names": ["down", "up"], "instructions": "Be quick."},
        ),
        rewards=[RewardConfig(function="tests.rollout.scores:has_names")],
    )
    config.model.chat = f"{Path(__file__).parents[3]}/examples/extend/chat_format.py:Names"
    rollouts = RolloutWorker(plan_rollouts(config), tiny_vlm, None)
    await rollouts.start()
    try:
        (scored,) = await rollouts.collect(requests_of_step("train", 1, [3], 1), "player")
    finally:
        await rollouts.close()
    assert scored.reward == 1.0


async def test_held_out_episodes_may_have_their_own_settings() -> None:
    config = Config(
        env=EnvConfig(
            id="tests.rollout.games:Countdown-v0",
            kwargs={"length": 2, "said": "!"},
            translator_kwargs={"names": ["down", "up"]},
        )
    )
    config.eval.kwargs = {"length": 4}
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        for split, length in (("train", 2), ("eval", 4), ("train", 2)):
            (scored,) = await rollouts.collect(requests_of_step(split, 1, [3], 1), "player")
            assert scored.episode.reset_info["left"] == length
    finally:
        await rollouts.close()
    config.eval.kwargs = {"length": -1}
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        with pytest.raises(ConfigError, match=r"^eval\.kwargs\.length=-1: must be at least 0"):
            await rollouts.collect(requests_of_step("eval", 1, [3], 1), "player")
    finally:
        await rollouts.close()
    config.eval.kwargs = {"lenght": 4}
    with pytest.raises(ConfigError, match=r"eval\.kwargs\.lenght.*did you mean 'length'"):
        check_scripted_play(plan_rollouts(config), ["player"])


async def test_the_horizon_of_training_episodes_grows_and_others_are_whole() -> None:
    config = Config(
        env=EnvConfig(
            id="tests.rollout.games:Countdown-v0",
            kwargs={"length": 9},
            translator_kwargs={"names": ["down", "up"]},
            max_turns=8,
            horizon=HorizonConfig(start=2, steps=4),
        )
    )
    rollouts = RolloutWorker(plan := plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        for step, turns in ((1, 2), (2, 3), (3, 5), (4, 6), (5, 8), (100, 8)):
            assert plan.curriculum(step) == {"horizon": turns}
            for split in ("train", "eval", "demo"):
                (scored,) = await rollouts.collect(requests_of_step(split, step, [3], 1), "player")
                episode, limit = scored.episode, turns if split == "train" else 8
                assert len(episode.turns) == limit
                assert episode.outcome is Outcome.TRUNCATED
                is_short = limit < 8
                assert episode.truncated_by is (
                    TruncatedBy.HORIZON if is_short else TruncatedBy.TURNS
                )
    finally:
        await rollouts.close()


SEEDS = [4, 5, 6, 7]


@pytest.fixture(scope="module")
def guided(tiny_vlm, tmp_path_factory):
    """Recorded episodes of Sokoban in several steps and splits: four groups of two in each."""
    config = Config(
        env=EnvConfig(
            id="Sokoban-v0",
            kwargs={"size": 5, "min_moves": 4},
            max_turns=6,
            horizon=HorizonConfig(start=1, steps=100),
            start=StartConfig(player="expert", turns=4, steps=2),
        )
    )
    config.rollout.engine, config.rollout.launcher = "hf", "local"
    config.rollout.max_new_tokens, config.rollout.max_context = 4, 2048
    config.run = replace(config.run, dir=str(tmp_path_factory.mktemp("runs")), name="guided")
    plan = plan_rollouts(config)
    folder = RunFolder.create(config.run, "guided")
    folder.save_config(config.to_dict())

    async def play():
        rollouts = RolloutWorker(plan, tiny_vlm, folder.path)
        await rollouts.start()
        try:
            return {
                (split, step): await rollouts.collect(requests_of_step(split, step, SEEDS, 2))
                for split, step in (("train", 1), ("train", 2), ("train", 3), ("eval", 1))
            }
        finally:
            await rollouts.close()

    return plan, asyncio.run(play()), replay.open(folder.path)


def guide_turns(scored):
    return [turn for turn in scored.episode.turns if not turn.reply_ids]


def test_a_scripted_player_makes_the_first_turns_of_training_episodes(guided):
    plan, played, _ = guided
    assert [plan.curriculum(step)["start_turns"] for step in (1, 2, 3, 4)] == [4, 2, 0, 0]
    for (split, step), episodes in played.items():
        counts = [len(guide_turns(one)) for one in episodes]
        assert max(counts) == {("train", 1): 4, ("train", 2): 2}.get((split, step), 0)
        for one, sibling, count in zip(episodes[::2], episodes[1::2], counts[::2], strict=True):
            first, *_ = one.episode.turns
            ways = [[t.action for t in guide_turns(each)] for each in (one, sibling)]
            assert ways[0] == ways[1]
            assert all(t.info["changed"] for t in guide_turns(one))
            assert first.reply_ids or "<action>" in first.reply
            own = 6 if split == "eval" else 1  # the horizon counts the model's turns alone
            if one.episode.outcome is Outcome.TERMINATED:  # the player has solved the level
                assert one.episode.turns[-1].info["optimal"] == count == 4
                own = 0
            assert len(one.episode.turns) == count + own


def test_a_scripted_players_turns_are_marked_in_recordings_and_pages(guided):
    _, played, run = guided
    for episodes in played.values():
        for one in episodes:
            recorded = run.episode(one.episode.id).episode
            assert [t.guide for t in recorded.turns] == [t.guide for t in one.episode.turns]
            assert [t for t in one.episode.turns if t.guide == "expert"] == guide_turns(one)
            assert one.episode.num_guided == len(guide_turns(one))
            if recorded.num_guided and recorded.num_guided < len(recorded.turns):
                page = html_pages.episode_page(run, run.episode(recorded.id)).decode()
                assert page.count("by <bdi>expert</bdi> (env.start)") == recorded.num_guided


def test_exports_leave_out_a_scripted_players_turns(guided, tmp_path):
    _, played, run = guided
    known = {one.episode.id: one.episode for episodes in played.values() for one in episodes}
    assert any(one.num_guided for one in known.values())
    own = {id: [t for t in one.turns if t.guide is None] for id, one in known.items()}
    turns = [row["reply"] for row in rows(run, "turns")]
    assert sorted(turns) == sorted(turn.reply for kept in own.values() for turn in kept)
    assert all(row["reply_ids"] for row in rows(run, "turns"))
    for history in (None, parse_history("window:2")):
        for row in rows(run, "conversations", history=history):
            said = [one["content"] for one in row["messages"] if one["role"] == "assistant"]
            kept = [turn.reply.replace("<image>", "<image >") for turn in own[row["id"]]]
            assert all(reply in kept for reply in said)
            assert row["guided_turns"] == known[row["id"]].num_guided
    minari_export.write(run, tmp_path / "sokoban-v0", replies=True)
    dataset = minari.MinariDataset(tmp_path / "sokoban-v0" / "data")
    ids = [about["episode"] for about in dataset.storage.get_episode_metadata(range(len(dataset)))]
    assert {*ids} == {id for id, kept in own.items() if kept}
    for id, one in zip(ids, dataset, strict=True):
        assert [*one.actions] == [encodable(turn.reply) for turn in own[id]]
        assert len(one.rewards) == len(own[id])


def test_a_scripted_players_turns_are_context_that_is_not_trained_on(guided):
    _, played, _ = guided
    episodes = played["train", 1]
    assert any(guide_turns(one) for one in episodes)
    tensors = build_trajectories([episodes])
    own = [one.rewards[-1] if one.episode.turns[-1].reply_ids else 0.0 for one in episodes]
    assert tensors.returns.tolist() == own  # without what the player earned
    solved = [one for one in episodes if one.episode.outcome is Outcome.TERMINATED]
    assert [split_into_sequences(one.episode) for one in solved] == [[], []]
    for index, one in enumerate(episodes):
        if one in solved:
            continue
        (sequence,) = split_into_sequences(one.episode, index)
        *_, last = one.episode.turns
        assert sequence.sampled_positions == tuple(
            range(len(last.prompt_ids), len(last.prompt_ids) + len(last.reply_ids))
        )
        for before, after in itertools.pairwise(one.episode.turns):
            assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
            assert len(after.prompt_ids) > len(before.prompt_ids) + 4  # and the player's reply


def test_an_unknown_player_for_the_start_is_an_error() -> None:
    config = Config(env=EnvConfig(id="Sokoban-v0", start=StartConfig(player="exprt")))
    with pytest.raises(ConfigError, match=r"env\.start\.player=exprt: .*did you mean 'expert'"):
        plan_rollouts(config)


def test_environments_of_a_mixture_have_their_own_horizon() -> None:
    mixture = [
        {"name": "short", "env": {"max_turns": 10}},
        {"name": "long", "env": {"max_turns": 30, "horizon": {"start": 10, "steps": 10}}},
        {"name": "other", "env": {"id": "Sokoban-v0"}},
    ]
    config = configuration.from_dict(
        {"env": {"horizon": {"start": 2, "steps": 4}}, "mixture": mixture}
    )
    jobs = config.environments()
    assert [job.env.training_turns(3) for job in jobs.values()] == [6, 14, 40]
    with pytest.raises(ConfigError, match=r"horizon\.start=2: must be below env\.max_turns=2"):
        replace(
            config, mixture=[MixtureConfig(name="a", env={"max_turns": 2})]
        ).validate_for_training()


async def test_reward_that_fails_ends_the_job_if_configured(tmp_path):
    config = Config(env=EnvConfig(id="tests.rollout.games:Countdown-v0"))
    config.env.translator_kwargs = {"names": ["down", "up"]}
    config.rewards = [RewardConfig(function="tests.rollout.scores:raises")]
    config.rollout.reward_failure = "error"
    rollouts = RolloutWorker(plan_rollouts(config), None, tmp_path)
    await rollouts.start()
    try:
        with pytest.raises(RewardError, match="reward_failure=void"):
            await rollouts.collect(requests_of_step("train", 1, [3], 1), "player")
    finally:
        await rollouts.close()
    (episode,) = replay.open(tmp_path).episodes()  # it was recorded before
    assert episode.outcome is Outcome.ENV_ERROR
