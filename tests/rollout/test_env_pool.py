import re
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentrl import devices
from agentrl.config import Config, EnvConfig, WrapperConfig
from agentrl.errors import (
    AppLeft,
    ConfigError,
    DeviceError,
    DeviceOffline,
    EnvError,
    NoDevice,
    ScreenRotated,
)
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.env_pool import PhoneEnvPool
from agentrl.rollout.environments.env_processes import EnvProcesses
from agentrl.rollout.environments.load_translator_and_players import read_interface
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Outcome
from tests.rollout.test_collector import episode_of
from tests.test_child_process import is_running


@pytest.mark.adb
async def test_waiting_for_a_busy_phone_is_bounded(adb_server):
    async def play(runner):
        raise AssertionError("there was no phone to play on")

    with devices.open_source("virtual:2") as pool:
        env_pool = PhoneEnvPool(
            lambda split, name: resolve_env(EnvConfig()), pool, None, phone_wait_s=0.3, count=2
        )
        async with pool.lease(1), pool.lease(1):
            started = time.monotonic()
            with pytest.raises(NoDevice):
                await env_pool.run_in_env(play)
            assert 0.5 < time.monotonic() - started < 3


@pytest.mark.adb
@pytest.mark.parametrize(
    ("third", "failure", "put_aside"),
    [
        (Outcome.TIMEOUT, None, True),
        (Outcome.DEVICE_ERROR, AppLeft("call", "it rang"), True),
        (Outcome.DEVICE_ERROR, ScreenRotated("it was turned"), True),
        (Outcome.ENV_ERROR, EnvError("the game publishes no state after its launch"), True),
        (Outcome.TERMINATED, None, False),
    ],
)
async def test_an_episode_that_may_be_the_phones_fault_changes_no_failure_count(
    adb_server, third, failure, put_aside
):
    (request,) = requests_of_step("train", 1, [5], 1)
    with devices.open_source("virtual:1") as pool:
        env_pool = PhoneEnvPool(
            lambda split, name: resolve_env(EnvConfig()), pool, None, phone_wait_s=30, count=1
        )
        failed = (Outcome.DEVICE_ERROR, DeviceOffline("gone"))
        for outcome, why in (failed, failed, (third, failure), failed):

            async def end(runner, outcome=outcome, why=why):
                return replace(episode_of(request, outcome), failure=why)

            assert (await env_pool.run_in_env(end)).outcome is outcome
            assert why is None or why.__traceback__ is None, "frames would keep images in memory"
        (phone,) = pool.stats()
        assert (phone.failures, phone.quarantined) == (3, put_aside)


@pytest.mark.parametrize("processes", [0, 2])
async def test_processes_give_the_same_episodes_as_threads(processes: int) -> None:
    wrapper = WrapperConfig(wrapper="gymnasium.wrappers:TimeLimit", kwargs={"max_episode_steps": 4})
    settings = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs={"length": 9},
        translator_kwargs={"names": ["down", "up"]},
        wrappers=[wrapper],
        processes=processes,
    )
    rollouts = RolloutWorker(plan_rollouts(Config(env=settings)), None, None)
    await rollouts.start()
    try:
        played = await rollouts.collect(requests_of_step("train", 1, [3, 4], 3), "player")
        assert {(e.episode.outcome, len(e.episode.turns)) for e in played} <= {
            (Outcome.TRUNCATED, 4), (Outcome.TRUNCATED, 5)
        }  # fmt: skip
        assert [e.episode.reset_info["state_key"] for e in played] == ["3/9"] * 3 + ["4/9"] * 3
    finally:
        await rollouts.close()


HANGS = """
import ctypes, gymnasium

class Hangs(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        if seed == 1: ctypes.PyDLL(None).sleep(60)  # with Python's lock
        return 0, {}
"""


def test_hanging_process_is_killed_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / f"hangs_{tmp_path.name}.py"
    file.write_text(HANGS)
    processes, config = EnvProcesses(1), resolve_env(EnvConfig(id=f"{file}:Hangs"))
    try:
        with closing(processes.make(config, None, 5.0)) as made, pytest.raises(EnvError):
            made.reset(seed=1)
        with closing(processes.make(config, None, 60.0)) as made:
            assert made.reset(seed=2)[0] == 0
    finally:
        processes.close()


def test_environment_that_ends_its_process_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / f"ends_{tmp_path.name}.py"
    file.write_text(f"import os\n{HANGS}    def __init__(self): os._exit(0)\n")
    with pytest.raises(ConfigError, match="cannot be constructed: EnvCrashed"):
        read_interface(resolve_env(EnvConfig(id=f"{file}:Hangs", processes=1)))


def test_environment_in_a_process_honors_render_mode() -> None:
    processes = EnvProcesses(1)
    try:
        config = resolve_env(EnvConfig(id="FrozenLake-v1", kwargs={"render_mode": "ansi"}))
        with closing(processes.make(config, "rgb_array", 60.0)) as made:
            made.reset(seed=1)
            assert "SFFF" in re.sub(r"\x1b\[[0-9;]*m", "", made.render())
        wrong = resolve_env(EnvConfig(id="FrozenLake-v1", kwargs={"nothing": 1}))
        with pytest.raises(ConfigError, match="nothing"):
            processes.make(wrong, None, 60.0)
    finally:
        processes.close()


TYPED = """
import gymnasium, numpy as np
from agentrl.errors import DeviceError

class PaperJam(DeviceError):
    def __init__(self, tray, *, sheets):
        super().__init__(f"tray {tray}")
        self.sheets = sheets

class Printer(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1, (2, 3), np.float64)
    def reset(self, *, seed=None, options=None):
        info = {1: (2, {"x"}), "dates": np.array(["2026"], "M8[D]")}
        return np.arange(6.0).reshape(2, 3)[:, ::-1] / 7, info
    def step(self, action):
        if action:
            return 0, 0.0, False, False, {"late": lambda: 1}
        raise PaperJam(2, sheets=7)
"""


def test_results_and_errors_of_an_environment_in_a_process_arrive_as_they_are(
    tmp_path: Path,
) -> None:
    file = tmp_path / f"printer_{tmp_path.name}.py"
    file.write_text(TYPED)
    processes = EnvProcesses(1)
    try:
        with closing(
            processes.make(resolve_env(EnvConfig(id=f"{file}:Printer")), None, 60.0)
        ) as made:
            seen, info = made.reset(seed=1)
            assert (seen == np.arange(6.0).reshape(2, 3)[:, ::-1] / 7).all()
            assert (info[1], info["dates"].dtype) == ((2, {"x"}), np.dtype("M8[D]"))
            with pytest.raises(DeviceError, match=r"^tray 2$") as raised:
                made.step(0)
            assert (raised.typename, vars(raised.value)["sheets"]) == ("PaperJam", 7)
            with pytest.raises(
                EnvError, match=r"step\(\) \(seed 1\): cannot send the result: .*lambda"
            ):
                made.step(1)
    finally:
        processes.close()


HOLDER = """
import sys, time
from agentrl.config import EnvConfig
from agentrl.rollout.environments.env_processes import EnvProcesses
from agentrl.rollout.environments.resolved_env import resolve_env

if __name__ == "__main__":
    processes = EnvProcesses(1)
    kwargs = {"fault": "leaves a process", "folder": sys.argv[1]}
    config = resolve_env(
        EnvConfig(id="tests.rollout.misbehaving:Misbehaving-v0", kwargs=kwargs)
    )
    made = processes.make(config, None, 60.0)
    print("made", flush=True)
    time.sleep(100)
"""


def test_a_killed_job_leaves_nothing_behind_that_keeps_its_output_open(tmp_path: Path) -> None:
    (tmp_path / "holder.py").write_text(HOLDER)
    holder = subprocess.Popen(
        [sys.executable, str(tmp_path / "holder.py"), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "made\n"
    (child,) = (int(file.stem) for file in tmp_path.glob("*.child"))
    assert is_running(child)
    holder.kill()
    holder.communicate(timeout=20)
    assert not is_running(child)
