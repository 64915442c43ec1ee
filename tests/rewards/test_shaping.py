"""Potential shaping has its published values, and distances are the least number of moves."""

import re
from dataclasses import replace

import gymnasium
import pytest

from agentrl.check.support.sample_episode import sample_episode
from agentrl.data.reward_inputs import MissingInfo
from agentrl.envs.toy_text.frozen_lake_maps import FrozenLakeMaps
from agentrl.envs.toy_text.goal_distance import GoalDistance, goal_distances
from agentrl.envs.toy_text.players import FrozenLakeExpert
from agentrl.errors import ConfigError
from agentrl.rewards.shaping import potential
from agentrl.types import Outcome


def episode(*distances, outcome=Outcome.TERMINATED):
    played = sample_episode()
    (turn, *_) = played.turns
    start, *after = distances
    return replace(
        played,
        reset_info={"distance": start},
        turns=tuple(replace(turn, info={"distance": one}) for one in after),
        outcome=outcome,
    )


def test_shaping_is_the_discounted_potential_after_minus_the_one_before():
    # F = discount * phi(s') - phi(s) with phi = -0.1 * distance; phi of the end is 0.
    shaped = potential(episode(3, 2, 3, 0), scale=0.1, discount=0.9)
    assert shaped == pytest.approx([-0.18 + 0.3, -0.27 + 0.2, 0.0 + 0.3])


def test_the_discounted_sum_depends_only_on_the_start():
    for way in ((3, 2, 1, 0), (3, 4, 3, 2, 1, 0), (3, 3, 9)):
        shaped = potential(episode(*way), scale=0.5, discount=0.9)
        total = sum(0.9**turn * reward for turn, reward in enumerate(shaped))
        assert total == pytest.approx(0.5 * 3)  # -phi(start)


def test_a_truncated_episode_keeps_its_last_potential():
    shaped = potential(episode(3, 2, outcome=Outcome.TRUNCATED))
    assert shaped == [1.0]
    assert potential(episode(3, 2)) == [3.0]


def test_a_missing_distance_is_an_error():
    with pytest.raises(MissingInfo, match="has no 'way', which this reward requires"):
        potential(episode(1, 0), key="way")


@pytest.mark.parametrize(
    ("env_id", "kwargs", "state", "distance"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, 0, 6),
        ("FrozenLake-v1", {"is_slippery": False}, 14, 1),
        ("FrozenLake-v1", {"is_slippery": False}, 5, 16),  # a hole
        ("CliffWalking-v1", {}, 36, 13),  # up, eleven times right, down
        ("CliffWalking-v1", {}, 0, 14),  # eleven right, three down
        ("Taxi-v4", {}, 0, 2),  # passenger and goal are here: pick up, drop off
        # Four up, pick up, eight around the wall between the second and third column, drop off.
        ("Taxi-v4", {}, 401, 14),
    ],
)
def test_distances_are_the_least_number_of_moves(env_id, kwargs, state, distance):
    assert goal_distances(gymnasium.make(env_id, **kwargs).unwrapped.P)[state] == distance


def test_the_info_has_the_distance_of_the_new_state():
    env = GoalDistance(gymnasium.make("FrozenLake-v1", is_slippery=False))
    _, info = env.reset(seed=0)
    found = [info["distance"]]
    for action in (0, 1, 1, 2, 2, 1, 2):  # into the wall, then the way to the goal
        *_, info = env.step(action)
        found.append(info["distance"])
    assert found == [6, 6, 5, 4, 3, 2, 1, 0]


def test_each_map_has_its_own_distances():
    env = GoalDistance(FrozenLakeMaps(is_slippery=False))
    for seed in range(5):
        _, info = env.reset(seed=seed)
        expert, moves = FrozenLakeExpert(env.action_space, is_slippery=False), 0
        observation, done = 0, False
        while not done:
            action = int(re.search(r"[0-3]", expert.reply(info, None, observation))[0])
            observation, _, done, _, info = env.step(action)
            moves += 1
        assert moves == env._distances[0]


def test_an_environment_without_transitions_is_an_error():
    with pytest.raises(ConfigError, match="which CartPoleEnv does not have"):
        GoalDistance(gymnasium.make("CartPole-v1"))
