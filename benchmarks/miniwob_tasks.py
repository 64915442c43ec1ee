"""Play tasks of MiniWoB++ on virtual phones: python benchmarks/miniwob_tasks.py --expert.

`--expert` prints how many episodes of each task the scripted player solves, with seeds from 0.
Without it, phones play the easy tasks with the scripted player at the same time, in one process:
the table has the seconds of a reset, and the steps per second of all phones.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.space_formats import action_format_for
from agentrl.devices.adb import AdbServer
from agentrl.envs.web_app.env import APP
from agentrl.envs.web_app.miniwob import EASY, USUAL, MiniWoB
from agentrl.envs.web_app.miniwob_expert.expert import MiniWoBExpert
from agentrl.errors import DeviceError, EnvError
from virtual_phone import spawn

DEADLINE_S = 60.0
MAX_TURNS = 40
RETRIES = 3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--expert", action="store_true", help="count the episodes it solves")
    parser.add_argument("--tasks", nargs="+", default=USUAL)
    parser.add_argument("--episodes", type=int, default=4, help="per task or phone")
    parser.add_argument("--phones", nargs="+", type=int, default=[1, 8])
    options = parser.parse_args()
    print(conditions("miniwob", "playwright"))
    if options.expert:
        print_solved(options.tasks, options.episodes)
        return
    table = Table("phones", "reset, s (median)", "step, s (median)", "steps/s, all phones")
    for count in options.phones:
        table.add_row(*speed(count, options.episodes))
    Console().print(table)


def print_solved(tasks: Sequence[str], episodes: int) -> None:
    """Print a line per task: solved episodes, and turns per episode."""
    adb = started_adb()
    solved = 0
    with spawn(1, [(APP, {})], tempo="quick", adb_server=(adb.host, adb.port)) as phones:
        for task in tasks:
            env = MiniWoB(tasks=[task], device=phones.serials[0])
            played = [patiently(env, seed) for seed in range(episodes)]
            env.close()
            wins = sum(success for success, *_ in played)
            solved += wins == episodes
            turns = statistics.mean(len(steps) for _, _, steps in played)
            print(f"{task:30} {wins} of {episodes}, {turns:.1f} turns", flush=True)
    print(f"{solved} of {len(tasks)} tasks in all episodes")


def speed(count: int, episodes: int) -> Sequence[str]:
    """Return a row of the table of speeds."""
    adb = started_adb()
    with (
        spawn(count, [(APP, {})], tempo="quick", adb_server=(adb.host, adb.port)) as phones,
        ThreadPoolExecutor(count) as threads,
    ):
        envs = [MiniWoB(tasks=EASY, device=serial) for serial in phones.serials]
        list(threads.map(lambda env: env.reset(seed=0), envs))  # starts the browser
        began = time.perf_counter()
        seeds = range(episodes)
        of_phones = threads.map(lambda env: [patiently(env, seed) for seed in seeds], envs)
        played = [episode for of_phone in of_phones for episode in of_phone]
        total_s = time.perf_counter() - began
        for env in envs:
            env.close()
    steps = [second for _, _, seconds in played for second in seconds]
    resets = [reset_s for _, reset_s, _ in played]
    rate = len(steps) / total_s
    medians = (f"{statistics.median(values):.2f}" for values in (resets, steps))
    return str(count), *medians, f"{rate:.1f}"


def patiently(env: MiniWoB, seed: int) -> tuple[bool, float, list[float]]:
    """Play an episode again if the phone does not answer in time, on a busy machine."""
    for _ in range(RETRIES):
        with contextlib.suppress(DeviceError, EnvError):
            return play(env, seed)
    return play(env, seed)


def play(env: MiniWoB, seed: int) -> tuple[bool, float, list[float]]:
    """Play an episode; return whether it was solved, and the seconds of its reset and steps."""
    player, form = MiniWoBExpert(), action_format_for(ScreenActionSpace())
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    _, info = env.reset(seed=seed)
    reset_s = time.perf_counter() - began
    steps: list[float] = []
    over = False
    while not over and len(steps) < MAX_TURNS:
        action = form.parse(player.reply(info, rng))
        began = time.perf_counter()
        _, _, over, _, info = env.step(action)
        steps.append(time.perf_counter() - began)
    return info["metrics"]["success"] == 1, reset_s, steps


def started_adb() -> AdbServer:
    """Return the adb server, started if necessary."""
    adb = AdbServer.from_environment()
    adb.ensure(DEADLINE_S)
    return adb


if __name__ == "__main__":
    main()
