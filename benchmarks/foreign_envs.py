"""Play environments of other packages and print the results as a Markdown table.

    python benchmarks/foreign_envs.py [--episodes 8] [ID ...]

The rollout worker of a job plays each environment with its `random` player, twice on the same
seeds. BrowserGym needs MINIWOB_URL. Rows name packages that are not installed.
"""

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.config import Config, EnvConfig
from agentrl.errors import AgentRLError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import read_interface
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Episode, without_placeholders

ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    "FrozenLake-v1": {},
    "Taxi-v4": {},
    "CliffWalking-v1": {},
    "Blackjack-v1": {},
    "CartPole-v1": {},
    "Pendulum-v1": {},
    "minigrid:MiniGrid-DoorKey-5x5-v0": {},
    "minigrid:BabyAI-GoToObj-v0": {},
    "ale_py:ALE/Pong-v5": {},
    "pettingzoo:classic/tictactoe-v3": {},
    "pettingzoo:classic/connect_four-v3": {"kwargs": {"agent": "player_1"}},
    "pettingzoo:classic/rps-v2": {"kwargs": {"agent": "all"}},
    "browsergym.miniwob:browsergym/miniwob.click-test": {
        "processes": "each",
        "translator_kwargs": {"text": "{{ observation.goal }}"},
    },
}
"""Settings of `env` other than `id`, by id."""
_TURNS = 20


def row(id: str, settings: Mapping[str, Any], episodes: int) -> str:
    """Play an environment and return its table row."""
    config = Config(env=EnvConfig(id=id, max_turns=_TURNS, **settings))
    config.rollout.max_refills, config.rollout.concurrency = 0, 2
    config.rollout.deadline_s = 300.0
    extra = ", ".join(f"`{key}: {value}`" for key, value in settings.items()) or "-"
    try:
        space = type(read_interface(resolve_env(config.env))["action_space"]).__name__
        started = time.perf_counter()
        first = asyncio.run(play(config, episodes))
        turns = sum(len(one.turns) for one in first)
        milliseconds = 1000 * (time.perf_counter() - started) / max(1, turns)
        again = asyncio.run(play(config, episodes))
    except AgentRLError as error:
        return f"| `{id}` | {extra} | {str(error).partition(chr(10))[0][:120]} | | | | |"
    turns_seen = first[0].turns[:1]
    parts = ["picture" for turn in turns_seen if turn.images]
    parts += ["text" for turn in turns_seen if without_placeholders(turn.shown)]
    void = sum(one.outcome.void for one in first)
    same = sum(map(equal, first, again))
    shown = " and ".join(parts) or "nothing"
    counts = f"{episodes - void} of {episodes} | {same} of {episodes}"
    return f"| `{id}` | {extra} | {space} | {shown} | {counts} | {milliseconds:.1f} |"


async def play(config: Config, episodes: int) -> list[Episode]:
    """Play one episode per seed with a random player."""
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        requests = requests_of_step("train", 1, list(range(1, episodes + 1)), 1)
        return [one.episode for one in await rollouts.collect(requests, "random")]
    finally:
        await rollouts.close()


def equal(one: Episode, other: Episode) -> bool:
    """Return whether two episodes have the same observations, actions and rewards."""
    return len(one.turns) == len(other.turns) and all(
        (a.shown, a.reply, a.env_reward) == (b.shown, b.reply, b.env_reward)
        and all(map(np.array_equal, a.images, b.images))
        for a, b in zip(one.turns, other.turns, strict=True)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", default=[])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--openenv", help="HOST:PORT of a server")
    given = parser.parse_args()
    chosen = {id: ENVIRONMENTS.get(id, {}) for id in given.ids or ENVIRONMENTS}
    if given.openenv:
        chosen[f"openenv://{given.openenv}"] = {}
    print(
        "| `env.id` | other settings | actions | the model sees | played | repeated | ms a turn |"
    )
    print("|---|---|---|---|---|---|---|")
    for id, settings in chosen.items():
        print(row(id, settings, given.episodes), flush=True)


if __name__ == "__main__":
    main()
