"""The scripted player in MiniGrid's own rooms, where the shortest path is known."""

import numpy as np
import pytest

from agentrl.envs.minigrid.players import Walker

MOVES = ["left", "right", "forward", "pickup", "drop", "toggle", "done"]


@pytest.mark.parametrize("size", [5, 8])
def test_the_walker_takes_the_shortest_way(size: int) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    wrappers = pytest.importorskip("minigrid.wrappers")
    room = gymnasium.make(f"MiniGrid-Empty-{size}x{size}-v0")  # from one corner to the other
    env = wrappers.RGBImgObsWrapper(room, tile_size=28)
    walker, rng = Walker(env.action_space, MOVES), np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    ended, steps = False, 0
    while not ended:
        reply = walker.reply(info, rng, observation)
        move = MOVES.index(reply.removeprefix("<action>").removesuffix("</action>"))
        observation, reward, ended, _, info = env.step(move)
        steps += 1
    assert reward > 0
    assert steps == 2 * (size - 3) + 1  # one turn
