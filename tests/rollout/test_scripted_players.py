"""Scripted players that read the environment's observation, and players that do not need it."""

import pytest

from agentrl.check.environments.checks import check_player
from agentrl.config import Config, EnvConfig
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Outcome

OPTIMAL = {
    "FrozenLake-v1": (["left", "down", "right", "up"], 6, 1.0),
    "Taxi-v4": (["south", "north", "east", "west", "pickup", "dropoff"], None, None),
    "minigrid:MiniGrid-Empty-Random-6x6-v0": (
        ["left", "right", "forward", "pickup", "drop", "toggle", "done"], None, None,
    ),
}  # fmt: skip
"""Names of the actions; steps and return of the best play, where all seeds have the same."""


@pytest.mark.parametrize("id", OPTIMAL)
@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_player_reads_the_observation(id: str, processes: int) -> None:
    names, steps, total = OPTIMAL[id]
    kind = id.rpartition(":")[2].partition("-")[0]
    config = Config()
    config.env = EnvConfig(
        id=id,
        kwargs={"is_slippery": False} if kind == "FrozenLake" else {},
        translator_kwargs={"names": names},
        players={"expert": f"tests.rollout.board_players:{kind}Player"},
        processes=processes,
        max_turns=30,
    )
    assert check_player(config.env, "expert").state == "ok"
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        played = await rollouts.collect(requests_of_step("train", 1, [1, 2, 3], 1), "expert")
    finally:
        await rollouts.close()
    for one in played:
        rewards = [turn.env_reward for turn in one.episode.turns]
        assert one.episode.outcome is Outcome.TERMINATED
        assert rewards[-1] > 0 or sum(rewards) == total
        assert steps in (len(rewards), None)
        assert total in (sum(rewards), None)
