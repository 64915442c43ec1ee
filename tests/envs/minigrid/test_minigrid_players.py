"""The scripted player in MiniGrid's own rooms, judged by their rewards."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentrl.envs.minigrid.players import Planner, Walker
from agentrl.envs.minigrid.room_state import RoomState
from agentrl.errors import ConfigError

MOVES = ["left", "right", "forward", "pickup", "drop", "toggle", "done"]


@pytest.fixture
def room() -> Callable[[str], Any]:
    """Return a function that makes a room with its state."""
    pytest.importorskip("minigrid")
    import gymnasium

    return lambda name: RoomState(gymnasium.make(f"MiniGrid-{name}-v0"))


def played(env: Any, seed: int) -> tuple[int, float]:
    """Return the planner's number of moves and its reward."""
    planner, rng = Planner(env.action_space, MOVES), np.random.default_rng(0)
    _, info = env.reset(seed=seed)
    ended, steps, reward = False, 0, 0.0
    while not ended:
        reply = planner.reply(info, rng)
        move = MOVES.index(reply.removeprefix("<action>").removesuffix("</action>"))
        _, reward, terminated, truncated, info = env.step(move)
        ended, steps = terminated or truncated, steps + 1
    return steps, float(reward)


@pytest.mark.parametrize("size", [5, 8])
def test_the_planner_takes_the_shortest_way(room, size: int) -> None:
    steps, reward = played(room(f"Empty-{size}x{size}"), 0)  # from one corner to the other
    assert reward > 0
    assert steps == 2 * (size - 3) + 1  # one turn


@pytest.mark.parametrize(
    "name", ["FourRooms", "DoorKey-5x5", "DoorKey-8x8", "Fetch-5x5-N2", "Fetch-8x8-N3"]
)
def test_the_planner_opens_doors_and_fetches_what_is_asked_for(room, name: str) -> None:
    env = room(name)
    for seed in range(20):
        steps, reward = played(env, seed)
        assert reward == pytest.approx(1 - 0.9 * steps / env.unwrapped.max_steps)


def test_the_player_of_recorded_runs_still_walks_to_the_goal() -> None:
    wrappers = pytest.importorskip("minigrid.wrappers")
    import gymnasium

    env = wrappers.RGBImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0"), tile_size=28)
    walker, rng = Walker(env.action_space, MOVES), np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    ended, steps, reward = False, 0, 0.0
    while not ended and steps < 20:
        reply = walker.reply(info, rng, observation)
        move = MOVES.index(reply.removeprefix("<action>").removesuffix("</action>"))
        observation, reward, ended, _, info = env.step(move)
        steps += 1
    assert reward > 0
    assert steps == 2 * (5 - 3) + 1


def test_the_state_of_other_environments_is_refused() -> None:
    import gymnasium

    with pytest.raises(ConfigError, match="RoomState is meant for MiniGrid"):
        RoomState(gymnasium.make("CartPole-v1"))
