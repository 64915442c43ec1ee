"""Masked regions, other apps and serials are never written to disk."""

import asyncio
import gzip
import subprocess
import time

import numpy as np
import pytest

from agentrl.config import Config, EnvConfig
from agentrl.devices import ActionSyntax, Tap, open_device
from agentrl.devices.adb import find_adb
from agentrl.envs.android.number_game.players import NumberGameExpert
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.replay import Run
from agentrl.replay import open as open_run
from agentrl.replay.recorder import Recorder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.env_pool import open_env_pool
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.run_episode import EpisodeLimits, run_episode
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Outcome, ScoredEpisode
from tests.replay.packs import frame_ids
from tests.rollout.games import Player

CHROME, MASK = "com.android.chrome", [0.2, 0.3, 0.7, 0.6]


def number_game(delay_ms=0):
    config = Config()
    config.env = EnvConfig(kwargs={"rounds": 2}, max_turns=4)
    config.devices.source = "virtual:1"
    config.devices.effect_delay_ms = [delay_ms, delay_ms]
    return config


def pictures(run):
    """Return every picture below a run's folder, RGB."""
    recorded = Run(run)
    return [recorded.frame(id) for id in frame_ids(run)]


@pytest.mark.adb
@pytest.mark.parametrize("frames", ["device", "model"])
async def test_a_masked_region_is_black_in_every_recorded_picture(
    adb_server, tiny_vlm, tmp_path, frames
):
    config = number_game()
    config.run.frames, config.devices.mask = frames, [MASK]
    rollouts = RolloutWorker(plan_rollouts(config), tiny_vlm, tmp_path)
    await rollouts.start()
    try:
        await rollouts.collect(requests_of_step("train", 1, [5], 1), "expert")
    finally:
        await rollouts.close()
    found = pictures(tmp_path)
    assert len(found) >= 3
    for picture in found:
        height, width = picture.shape[:2]
        left, top, right, bottom = (
            round(share * side) for share, side in zip(MASK, (width, height) * 2, strict=True)
        )
        assert not picture[top:bottom, left:right].any()
        assert picture[bottom + 20 :].any()


class Interrupted:
    """The expert; before its second reply, another app comes to the front.

    It waits for that app, or touches the system bar meanwhile, which leaves any app.
    """

    def __init__(self, serial, wait):
        self.serial, self.wait, self.replies = serial, wait, 0

    def reply(self, info, rng):
        self.replies += 1
        if self.replies == 2:
            shell(self.serial, "setprop", "debug.agentrl.fault.front", CHROME)
            end = time.monotonic() + 30
            while self.wait and CHROME not in shell(self.serial, "dumpsys", "window", "windows"):
                assert time.monotonic() < end
            if not self.wait:
                return ActionSyntax().format(Tap(0.5, 0.99))
        return NumberGameExpert().reply(info, rng)


def shell(serial, *words):
    command = [find_adb(), "-s", serial, "shell", *words]
    return subprocess.run(command, check=True, capture_output=True, timeout=30, text=True).stdout


@pytest.mark.adb
@pytest.mark.parametrize(
    ("delay_ms", "by"),
    [
        (0, "world"),
        (700, "agent"),  # it is visible after the touch
    ],
)
async def test_a_screen_of_another_app_is_never_on_disk(adb_server, tmp_path, delay_ms, by):
    config = number_game(delay_ms)
    (request,) = requests_of_step("train", 1, [5], 1)
    with Recorder(tmp_path) as recorder:
        env_pool = open_env_pool(plan_rollouts(config), recorder.frame, (0, 1))
        serial = env_pool.pool.serials[0]

        async def act(runner):
            policy = ScriptedPolicy(Interrupted(serial, wait=not delay_ms))
            limits = EpisodeLimits(max_turns=4, deadline_s=120)
            return await run_episode(request, config.env.id, runner, policy, 1, limits)

        try:
            episode = await env_pool.run_in_env(act)
            foreign = await asyncio.to_thread(screen_of_chrome, serial)
        finally:
            env_pool.close()
        scored = ScoredEpisode(episode=episode, components={}, rewards=(0.0,) * len(episode.turns))
        recorder.episode(scored, split="train", step=1)
    guard = episode.turns[1].info["guard"]
    assert (guard["by"], guard["package"]) == (by, CHROME)
    if by == "agent":
        assert episode.final_frames == ()
        assert CHROME in guard["no_frame"]
        assert (episode.outcome, episode.turns[1].env_reward) == (Outcome.TERMINATED, -1)
    else:
        assert len(episode.final_frames) == 1
        assert sum(turn.env_reward for turn in episode.turns) == 2
    recorded = pictures(tmp_path)
    assert recorded
    top = foreign.shape[0] // 20
    assert not any(np.array_equal(picture[top:], foreign[top:]) for picture in recorded)
    again = open_run(tmp_path).episode(episode.id).episode
    assert again.turns[1].info["guard"] == guard
    assert "settle" in again.turns[0].timings


def screen_of_chrome(serial):
    phone = open_device(serial, capture="raw", input="input")
    try:
        phone.shell("setprop", "debug.agentrl.fault.front", CHROME)
        end = time.monotonic() + 30
        while phone.focus() != CHROME:
            assert time.monotonic() < end
        return phone.screenshot()
    finally:
        phone.close()


async def test_recorded_episodes_do_not_contain_the_serial(tmp_path):
    address = "192.168.1.7:5555"
    (request,) = requests_of_step("train", 1, [6], 1)
    config = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs={"fault": "offline", "phone": address},
        translator_kwargs={"names": ["down", "up"]},
    )
    runner = EnvRunner(resolve_env(config), None, device=address)
    try:
        limits = EpisodeLimits(max_turns=9, deadline_s=30)
        episode = await run_episode(request, config.id, runner, ScriptedPolicy(Player()), 1, limits)
    finally:
        runner.close()
    assert episode.outcome is Outcome.DEVICE_ERROR
    assert episode.device.startswith("net-")
    assert episode.error == f"DeviceOffline: {episode.device} is offline"
    with Recorder(tmp_path) as recorder:
        scored = ScoredEpisode(episode=episode, components={}, rewards=(0.0,) * len(episode.turns))
        recorder.episode(scored, split="train", step=1)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    contents = [
        gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in files
    ]
    assert any(b"net-" in text for text in contents)
    assert not any(b"192.168" in text for text in contents)
