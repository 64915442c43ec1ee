"""Play MiniWoB++ on a virtual phone with its scripted player: python benchmarks/miniwob_tasks.py.

Each task is played over adb with several seeds, from a reset to the page's own reward, with as many
touches, texts and keys as it needs.
"""

import argparse
import time
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from conditions import conditions
from rich.console import Console

from agentrl import env_registry
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.space_formats import action_format_for
from agentrl.devices.adb import AdbServer
from agentrl.envs.web_app.env import APP
from agentrl.envs.web_app.miniwob import USUAL, MiniWoB, task_names
from agentrl.envs.web_app.miniwob_expert.expert import MiniWoBExpert
from agentrl.errors import ConfigError, EnvError
from agentrl.text_tables import UNLIMITED, ResultTable, print_table
from virtual_phone import spawn

DEADLINE_S = 60.0


@dataclass(slots=True, kw_only=True)
class Played:
    """The episodes of a task."""

    rewards: list[float] = field(default_factory=list)
    steps: int = 0
    reset_s: float = 0.0
    step_s: float = 0.0
    failure: str = ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--tasks", nargs="+", default=[*USUAL], choices=task_names(), metavar="TASK"
    )
    parser.add_argument("--seeds", type=int, default=4, help="episodes per task")
    parser.add_argument("--max-steps", type=int, default=60)
    options = parser.parse_args()
    adb = AdbServer.from_environment()
    adb.ensure(DEADLINE_S)
    address = (adb.host, adb.port)
    with spawn(1, [(APP, {})], tempo="quick", adb_server=address) as phones:
        found = {
            task: play(phones.serials[0], task, options.seeds, options.max_steps)
            for task in options.tasks
        }
    rows = [
        [task, f"{solved(one)} of {options.seeds}", f"{one.steps / options.seeds:.1f}", one.failure]
        for task, one in found.items()
    ]
    print(conditions("miniwob", "playwright"))
    columns = ("task", "solved", "steps", "failure")
    for part in ResultTable(columns=columns, rows=rows, names=1).fold(UNLIMITED):
        print_table(part, Console())
    episodes = options.seeds * len(found)
    always = sum(solved(one) == options.seeds for one in found.values())
    reset_s = sum(one.reset_s for one in found.values()) / episodes
    step_s = sum(one.step_s for one in found.values()) / sum(one.steps for one in found.values())
    print(
        f"{always} of {len(found)} tasks solved in each of {options.seeds} episodes, "
        f"{sum(map(solved, found.values()))} of {episodes} episodes; "
        f"a reset takes {reset_s:.2f} s, a step {step_s:.2f} s"
    )


def solved(played: Played) -> int:
    """Return the number of episodes that the page rewards fully."""
    return sum(reward == 1.0 for reward in played.rewards)


def play(serial: str, task: str, seeds: int, max_steps: int) -> Played:
    """Play a task with several seeds."""
    player, form = MiniWoBExpert(), action_format_for(ScreenActionSpace())
    played = Played()
    with closing(env_registry.make("MiniWoB-v0", device=serial, tasks=[task]).unwrapped) as env:
        assert isinstance(env, MiniWoB)
        for seed in range(seeds):
            try:
                began = time.monotonic()
                _, info = env.reset(seed=seed)
                played.reset_s += time.monotonic() - began
                total, rng = 0.0, np.random.default_rng(seed)
                for _ in range(max_steps):
                    action = form.parse(player.reply(info, rng))
                    began = time.monotonic()
                    _, reward, over, _, info = env.step(action)
                    played.step_s += time.monotonic() - began
                    played.steps += 1
                    total += float(reward)
                    if over:
                        break
                played.rewards.append(total)
            except (AssertionError, ConfigError, EnvError, LookupError, StopIteration) as error:
                played.failure = f"seed {seed}: {type(error).__name__}: {error}"[:100]
    return played


if __name__ == "__main__":
    main()
