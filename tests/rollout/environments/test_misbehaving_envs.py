"""Environments that misbehave, played by the real rollout worker, in threads and in processes."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import gymnasium
import psutil
import pytest

import agentrl
from agentrl.check.environments import check_environment, checks, side_effects
from agentrl.config import Config, EnvConfig, RewardConfig, WrapperConfig
from agentrl.env_registry import find_env
from agentrl.errors import ConfigError, WorldError
from agentrl.rollout import env_pool
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments import env_processes, load_translator_and_players
from agentrl.rollout.environments.env_server import OpaqueSpace
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training.evaluation.held_out_evaluation import play_held_out
from agentrl.types import Outcome
from tests.rollout import misbehaving
from tests.test_child_process import is_running

ID = "tests.rollout.misbehaving:Misbehaving-v0"
SLOW_TOO = pytest.mark.parametrize(
    "processes",
    [pytest.param(0, id="threads"), pytest.param(1, id="process", marks=pytest.mark.slow)],
)
BOTH = pytest.mark.parametrize("processes", [0, 1], ids=["threads", "process"])


def job(processes=0, id=ID, **kwargs):
    config = Config(env=EnvConfig(id=id, kwargs=kwargs, processes=processes))
    config.rollout.max_refills = 0
    config.rollout.concurrency = 5
    return config


async def play(config, seeds, folder=None, player="random"):
    """Play these seeds and close the environments; return the episodes and the progress."""
    rollouts = RolloutWorker(plan_rollouts(config), folder, None)
    await rollouts.start()
    try:
        requests = requests_of_step("train", 1, seeds, 1)
        return [e.episode for e in await rollouts.collect(requests, player)]
    finally:
        await rollouts.close()


@BOTH
async def test_all_environments_are_closed_and_what_processes_have_started_ends(
    processes: int, tmp_path: Path
) -> None:
    fault = "leaves a process" if processes else ""
    await play(job(processes, fault=fault, folder=str(tmp_path)), range(5))
    opened, closed = ({f.stem for f in tmp_path.glob(f"*.{w}")} for w in ("opened", "closed"))
    assert opened == closed
    assert len(opened) >= 5
    children = [int(file.stem) for file in tmp_path.glob("*.child")]
    assert len(children) == len(opened) * processes
    assert not any(map(is_running, children))


@SLOW_TOO
async def test_a_close_that_hangs_or_fails_is_waited_for_within_a_bound(
    processes: int, tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(env_pool, "CLOSE_S", 0.3)
    monkeypatch.setattr(env_processes, "CLOSE_S", 0.3)
    monkeypatch.setattr(env_processes, "_END_S", 0.3)
    config = job(processes, fault="hanging close", folder=str(tmp_path), seconds=30.0)
    config.rollout.deadline_s = 5.0
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    await rollouts.collect(requests_of_step("train", 1, [1, 2], 1), "random")
    started = time.monotonic()
    await rollouts.close()
    assert time.monotonic() - started < 10
    assert "did not close within 0.3 s" in caplog.text


@SLOW_TOO
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("failing close", "SystemExit: not closed (misbehaving.py:"),
        ("never closes", "it did not close within 0.3 s"),
    ],
)
def test_such_a_close_does_not_keep_a_job_from_starting(
    fault: str, problem: str, processes: int, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(load_translator_and_players, "CLOSE_S", 0.3)
    config = job(processes, fault=fault, seconds=15.0 if processes else 60.0).env
    assert load_translator_and_players.read_interface(resolve_env(config))[
        "action_space"
    ] == gymnasium.spaces.Discrete(2)
    problem = problem.replace("0.3", "10") if processes else problem
    assert f"closing {ID} failed: {problem}" in caplog.text


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        ("kills itself", "signal SIGKILL"),
        pytest.param("exits", "exit code 3", marks=pytest.mark.slow),
        pytest.param("segfaults", "signal SIGSEGV", marks=pytest.mark.slow),
    ],
)
async def test_what_ends_a_process_is_named(fault: str, how: str) -> None:
    config = job(1, fault=fault, every=3)
    config.rollout.concurrency = 1
    episodes = await play(config, [1, 3, 4])
    assert [e.outcome.void for e in episodes] == [False, True, False]
    assert episodes[1].error == (
        f"EnvCrashed: {ID}: step() (seed 3): its process (env.processes) ended with {how}"
    )


async def test_a_crashing_seed_costs_only_its_own_episode() -> None:
    config = job(1, fault="kills itself", every=8)
    config.rollout.concurrency, config.rollout.max_refills = 8, 0
    episodes = await play(config, range(1, 9))
    assert [e.outcome.void for e in episodes] == [*7 * [False], True]
    assert episodes[7].error == (
        f"EnvCrashed: {ID}: step() (seed 8): its process (env.processes) ended with signal SIGKILL"
    )


async def test_a_sleeper_voids_no_other_episode(tiny_vlm: Path) -> None:
    config = job(fault="sleeps in reset", every=4, seconds=3.0)
    config.rollout.engine, config.rollout.max_new_tokens = "hf", 2
    config.env.translator_kwargs = {"instructions": ""}
    config.env.max_turns = 3
    config.rollout.deadline_s, config.rollout.engine_kwargs = 1.5, {"patience_s": 0.3}
    config.rollout.concurrency = 4
    episodes = await play(config, [1, 2, 3, 4], tiny_vlm, player=None)
    assert [e.outcome for e in episodes] == [*3 * [Outcome.TRUNCATED], Outcome.TIMEOUT]
    assert episodes[3].error == (
        f"not finished within 1.5 s (rollout.deadline_s), while waiting for {ID}.reset(seed=4) in "
        "turn 1"
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("none", "is None (NoneType), not numbers"),
        ("nan", "contains NaN"),
        ("object", "(Foreign), not numbers"),
        ("objects", "is object[2], not numbers"),
        ("bytes", "is b'12' (bytes), not numbers"),
        ("oversized", "has the shape (300, 300), not (2,)"),
        ("growing", "has the shape (3200,), not (2,)"),
        ("endless text", "(str), not numbers"),
    ],
)
async def test_an_unusable_observation_is_named_and_voids_only_its_episode(
    fault: str, message: str
) -> None:
    episodes = await play(job(fault=fault, every=2), [1, 2, 3])
    assert [e.outcome.void for e in episodes] == [False, True, False]
    where = f"EnvError: {ID}: the observation after 2 steps "
    assert (episodes[1].error or "").startswith(where)
    assert message in (episodes[1].error or "")


@BOTH
async def test_an_end_that_is_no_boolean_voids_the_episode(processes: int) -> None:
    """`bool("False")` is True, so the episode would end after its first step."""
    episodes = await play(job(processes, fault="text ends", every=2), [1, 2])
    assert [len(e.turns) for e in episodes] == [5, 0]
    assert "TypeError: terminated is 'False' (str), not True or False" in (episodes[1].error or "")


async def test_environments_bound_to_a_thread_play_in_processes_of_their_own(
    tmp_path: Path,
) -> None:
    """All calls come from one thread, and a failed environment's process is replaced."""
    id = "tests.rollout.misbehaving:BoundToItsThread"
    config = job("each", id, fault="raises", every=3, folder=str(tmp_path))
    config.rollout.concurrency = 2
    episodes = await play(config, [1, 2, 3, 4, 5])
    assert [e.error for e in episodes if not e.outcome.void] == [None] * 4
    assert "RuntimeError: broken" in (episodes[2].error or "")
    assert len([*tmp_path.glob("*.opened")]) == len([*tmp_path.glob("*.closed")]) == 4


@SLOW_TOO
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("mute", "Mute: an error without a message, because its __str__ raises RuntimeError"),
        ("endless error", "ValueError: xxxx"),
        ("endless own error", "xxxx"),
        ("generator exit", "GeneratorExit: over"),
        ("interrupt", "KeyboardInterrupt: window closed"),
    ],
)
async def test_any_error_of_a_step_voids_only_its_episode_and_is_named_briefly(
    fault: str, message: str, processes: int, caplog
) -> None:
    episodes = await play(job(processes, fault=fault, every=2), [1, 2, 3])
    assert [e.outcome.void for e in episodes] == [False, True, False]
    assert message in (episodes[1].error or "")
    assert len(episodes[1].error or "") < 2500
    assert "discarded after 1 turns: EnvError: " in caplog.text
    assert len(caplog.text) < 5000


async def test_standard_streams_that_an_environment_closes_are_opened_again(capfd) -> None:
    config = job(fault="closes streams", every=2)
    config.rollout.concurrency = 1
    episodes = await play(config, [1, 2, 3])
    assert [e.outcome.void for e in episodes] == [False, True, False]
    assert episodes[1].error == (f"EnvError: {ID} closed the job's stdin and stdout and stderr")
    os.write(1, b"still there")
    assert "still there" in capfd.readouterr().out


@pytest.mark.slow
async def test_a_process_whose_environment_closes_its_streams_goes_on() -> None:
    episodes = await play(job(1, fault="closes streams", every=2), [1, 2, 3])
    assert not any(e.outcome.void for e in episodes)


@pytest.mark.slow
def test_a_job_whose_environment_changes_the_current_folder_stays_in_its_own(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score_here.py").write_text("def score(episode):\n    return 1.0\n")
    prompt = tmp_path / "prompt.jinja"
    prompt.write_text("{{ instructions }}")
    config = job(fault="changes folder")
    config.env.prompt = prompt.name
    config.env.max_turns = 2
    config.rewards = [RewardConfig(function="score_here.py:score")]
    settings = [
        "train.steps=2", "rollout.engine=hf", "rollout.launcher=local", "rollout.groups=1",
        "rollout.group_size=2", "rollout.max_new_tokens=4", "warm_start=null", "eval.episodes=2",
        "logging=[file]", "run.name=here", "checkpoint.every=1",
    ]  # fmt: skip
    run = agentrl.train(config, overrides=settings)
    assert Path.cwd() == Path("/")
    assert run.path == tmp_path / "runs" / "here"
    assert len(list((run.path / "checkpoints").iterdir())) == 2
    assert (run.path / "model" / "config.json").is_file()
    monkeypatch.chdir(tmp_path)
    evaluation = agentrl.evaluate("runs/here", episodes=2)
    assert evaluation.run is not None
    assert evaluation.run.parent == tmp_path / "runs"


class Unchecked(gymnasium.Wrapper):
    """An environment whose observation space accepts everything."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = OpaqueSpace("anything")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("object", "the observation contains a Foreign, which cannot be"),
        ("oversized", "the observation is float32[300, 300]; an image is"),
        ("growing", "the observation is float32[3200]; an image is"),
        ("endless text", "has 3,000,000 characters; the maximum is 1,000,000"),
    ],
)
async def test_so_is_one_of_which_its_space_says_nothing(fault: str, message: str) -> None:
    config = job(fault=fault, every=2)
    config.env.wrappers = [WrapperConfig(wrapper=f"{__name__}:Unchecked")]
    episodes = await play(config, [1, 2, 3])
    assert [e.outcome.void for e in episodes] == [False, True, False]
    assert message in (episodes[1].error or "")


async def test_an_observation_out_of_bounds_is_logged_once(caplog) -> None:
    episodes = await play(job(fault="outside"), [1, 2, 3])
    assert not any(e.outcome.void for e in episodes)
    assert caplog.text.count("after 2 steps is out of bounds for its space Box(-1.0, 1.0") == 1


@SLOW_TOO
async def test_an_environment_of_old_gym_is_explained(processes: int) -> None:
    for kwargs, message in (({}, "reset() returned a ndarray"), ({"seeded": False}, "a seed")):
        config = job(processes, f"{ID.partition(':')[0]}:OldGym", **kwargs)
        with pytest.raises(WorldError, match=re.escape(message) + ".*, as in the old"):
            await play(config, [1])


def found(config, what):
    """Return the check's finding about one topic."""
    return next(f for f in check_environment(config, 10) if f.what == what)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "after 2 steps contains NaN"),
        ("outside", "after 2 steps is not in Box(-1.0, 1.0, (2,), float32): array([7., 7.]"),
    ],
)
def test_the_check_looks_at_each_played_observation(fault: str, message: str) -> None:
    finding = found(job(fault=fault).env, "observations")
    assert (finding.state, message in finding.detail) == ("wrong", True), finding


def test_the_check_examines_wrappers() -> None:
    breaks = WrapperConfig(wrapper="tests.rollout.misbehaving:BreaksIt")
    config = replace(job().env, wrappers=[breaks])
    assert found(job().env, "gymnasium's checker").state == "ok"
    assert found(config, "gymnasium's checker").state == "wrong"
    assert found(config, "observations").state == "wrong"


def test_the_check_allows_timings_in_info() -> None:
    config = job(fault="timings").env
    assert found(config, "gymnasium's checker").state == "ok"
    info = found(config, "info")
    assert info.state == "note"
    assert "'timings' differs at step" in info.detail


@pytest.mark.parametrize("episodes", [checks._FEWEST_EPISODES, 6])
def test_the_check_notices_memory_that_grows_however_slow_episodes_are(
    episodes: int, monkeypatch
) -> None:
    monkeypatch.setattr(checks, "_FEWEST_EPISODES", episodes)
    monkeypatch.setattr(checks, "_MEMORY_S", 0.0)
    # glibc allocates more than 32 MB separately, never in memory that earlier tests freed
    finding = found(job(fault="leaks", megabytes=40).env, "memory")
    assert finding.state == "note"
    assert finding.detail == f"grows by 40.0 MB per episode in {episodes} episodes"
    assert found(job().env, "memory").detail == f"does not grow in {episodes} episodes"


@pytest.mark.parametrize(
    ("fault", "what", "state", "detail"),
    [
        ("changes folder", "side effects", "wrong", "it changed the current folder from "),
        ("changes umask", "side effects", "wrong", "it changed the umask from 022 to 007"),
        ("leaves a process", "side effects", "note", "1 process still running after close(): "),
        ("closes streams at the end", "side effects", "wrong", "it closed stdin and stdout and "),
        ("failing close", "reset and close", "note", "SystemExit: not closed (misbehaving.py:"),
    ],
)
def test_the_check_notices_what_an_environment_leaves_behind(
    fault: str, what: str, state: str, detail: str, tmp_path: Path
) -> None:
    here, umask = Path.cwd(), os.umask(0o022)
    try:
        finding = found(job(fault=fault, folder=str(tmp_path)).env, what)
        assert Path.cwd() == here
        assert os.umask(umask) == 0o022
    finally:
        os.umask(umask)
        for file in tmp_path.glob("*.child"):
            os.kill(int(file.stem), signal.SIGKILL)
    assert finding.state == state, finding
    assert detail in finding.detail
    assert found(job().env, what).state == "ok"


def test_the_check_stops_at_a_close_that_hangs(monkeypatch) -> None:
    monkeypatch.setattr(side_effects, "CLOSE_S", 0.2)
    *_, last = check_environment(job(fault="never closes").env)
    assert (last.what, last.state) == ("reset and close", "wrong")
    assert last.detail == "close() did not end within 0.2 s"


def test_the_check_of_a_slow_environment_has_a_bound_and_a_quick_form() -> None:
    config, begun = replace(job(fault="slow", seconds=0.2).env, max_turns=3), []
    started = time.monotonic()
    *_, last = check_environment(config, limit_s=2.0, begun=begun.append)
    assert time.monotonic() - started < 6
    assert (last.what, last.state) == ("time limit", "note")
    assert last.detail.startswith("not checked within 2 s: ")
    assert last.detail.endswith(", player random")
    assert begun[:3] == ["construction", "reset and close", "side effects"]
    checked = [*check_environment(config, quick=True)]
    assert {f.state for f in checked} <= {"ok", "note"}
    assert {"seeds", "replies"} <= {f.what for f in checked}
    assert not {"memory", "player random", "time limit"} & {f.what for f in checked}
    assert time.monotonic() - started < 20


def test_the_check_explains_old_gym() -> None:
    config = EnvConfig(id="tests.rollout.misbehaving:OldGym")
    assert "the old gym package" in found(config, "gymnasium's checker").detail
    with pytest.raises(ConfigError, match=r"old gym package; derive Ancient.*GymV21"):
        find_env("tests.rollout.misbehaving:Ancient")


def test_an_id_without_its_module_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="installed minigrid registers it, use minigrid:Mini"):
        find_env("MiniGrid-Empty-5x5-v99")


@SLOW_TOO
async def test_an_environment_that_grows_does_not_end_the_job(processes: int, monkeypatch) -> None:
    """Its first observation is too large for text from the fourth episode on."""
    monkeypatch.setattr(misbehaving.Misbehaving, "played", 0)
    config = job(processes, fault="grows")
    config.env.wrappers = [WrapperConfig(wrapper=f"{__name__}:Unchecked")]
    config.rollout.concurrency = 1
    episodes = await play(config, range(5))
    assert [e.outcome.void for e in episodes] == [False, False, False, True, True]
    assert "after 0 steps: the observation is float32[" in (episodes[3].error or "")


async def test_a_full_context_and_void_episodes_are_counted_in_evaluations(
    tiny_vlm: Path, caplog
) -> None:
    config = job(fault="raises", every=3)
    config.rollout.engine, config.rollout.max_new_tokens = "hf", 4
    config.env.translator_kwargs = {"instructions": ""}
    config.rollout.max_context, config.env.max_turns = 60, 30
    rollouts = RolloutWorker(plan_rollouts(config), tiny_vlm, None)
    await rollouts.start()
    try:
        evaluation = await play_held_out(rollouts, [1, 2])
        by_script = await play_held_out(rollouts, [1, 2, 3], player="random")
    finally:
        await rollouts.close()
    assert (evaluation.context_full, evaluation.void_causes) == (2, {})
    assert evaluation.summary()["context_full"] == 2
    assert "2 episodes ended because their context was full" in caplog.text
    assert (by_script.void, by_script.void_causes) == (1, {"EnvError": 1})
    assert by_script.summary()["void/EnvError"] == 1
    assert "1 episodes were void (1 x EnvError); 1 of them could not be played again" in caplog.text


@pytest.mark.slow
async def test_memory_that_grows_in_a_process_is_reported(monkeypatch, caplog) -> None:
    monkeypatch.setattr(env_processes, "_MEMORY_CHECK_S", 0.0)
    monkeypatch.setattr(env_processes, "_GROWTH_BYTES", 100_000_000)
    config = job(1, fault="leaks", megabytes=60)
    config.rollout.concurrency = 1
    await play(config, range(5))
    found = re.search(r"the memory of one of its processes .* from (\S+) to (\S+) GB", caplog.text)
    assert found is not None
    assert float(found[2]) > float(found[1])


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder with a short path, as Chromium creates a socket below it."""
    with tempfile.TemporaryDirectory(prefix="arl") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "hanging close"])
async def test_browsers_of_miniwob_end_with_the_job(fault: str, monkeypatch, short) -> None:
    """MiniWoB 1.1.0 with Selenium, where each environment has its own Chromium."""
    pytest.importorskip("miniwob")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with its driver")
    monkeypatch.setenv("MINIWOB_CHROME_BINARY", binary)
    monkeypatch.setenv("MINIWOB_CHROMEDRIVER", driver)
    monkeypatch.setenv("TMPDIR", str(short))  # in each browser's command line
    monkeypatch.setattr(env_pool, "CLOSE_S", 2.0)
    monkeypatch.setattr(env_processes, "CLOSE_S", 2.0)
    config = job(1, "tests.rollout.misbehaving:MiniwobClicks", fault=fault)
    config.env.max_turns = 2
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        played = await rollouts.collect(requests_of_step("train", 1, [1, 2], 1), "random")
        assert not any(e.episode.outcome.void for e in played)
        assert browsers(short)
    finally:
        await rollouts.close()
    end = time.monotonic() + 10
    while browsers(short):
        assert time.monotonic() < end, "there are browsers left"
        time.sleep(0.1)


def browsers(folder: Path) -> list[int]:
    """Return the processes of browsers whose profile is in a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process.pid)
    return found


CRASHES = """
import asyncio
from tests.rollout.environments.test_misbehaving_envs import job, play
asyncio.run(play(job(fault="segfaults"), [1]))
"""


@pytest.mark.slow
def test_a_crash_in_a_thread_names_the_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert re.search(r'misbehaving.py", line \d+ in _fail', done.stderr)


def test_a_process_that_dies_with_environments_in_its_threads_gets_a_hint() -> None:
    config = job().env
    assert resolve_env(config).crash_hint().endswith("set env.processes=1")
    assert resolve_env(replace(config, processes=1)).crash_hint() == ""
    assert resolve_env(EnvConfig(id="NumberGame-v0")).crash_hint() == ""
