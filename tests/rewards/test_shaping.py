"""Potential shaping has its published values, and distances are the least number of moves."""

import re
from dataclasses import replace

import gymnasium
import pytest

from agentrl.check.support.sample_episode import sample_episode
from agentrl.data.reward_inputs import MissingInfo
from agentrl.envs.sokoban.env import Sokoban
from agentrl.envs.sokoban.solution_length import SolutionLength
from agentrl.envs.toy_text.frozen_lake_maps import FrozenLakeMaps
from agentrl.envs.toy_text.goal_distance import GoalDistance, goal_distances
from agentrl.envs.toy_text.players import FrozenLakeExpert
from agentrl.errors import ConfigError
from agentrl.rewards.shaping import potential
from agentrl.types import Outcome
from tests.envs.sokoban.search import shortest


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


@pytest.fixture(scope="module")
def sokoban_walks():
    """Random episodes of small levels: each board and its distance, and how the episode ended."""
    walks = []
    for seed in range(12):
        env = SolutionLength(Sokoban(size=5, boxes=1 + seed % 2, max_steps=25))
        env.action_space.seed(seed)
        boards = [env.reset(seed=seed)[1]]
        ends = False
        while not ends and len(boards) <= 25:
            _, _, ends, _, info = env.step(env.action_space.sample())
            boards.append(info)
        walks.append((boards, Outcome.TERMINATED if ends else Outcome.TRUNCATED))
    return walks


def test_the_distance_of_a_board_is_the_length_of_its_shortest_solution(sokoban_walks):
    for boards, _ in sokoban_walks:
        assert boards[0]["distance"] == boards[0]["optimal"]
    seen = {info["board"]: info["distance"] for boards, _ in sokoban_walks for info in boards}
    exhaustive = {board: shortest(board) for board in seen}
    assert None in exhaustive.values()  # lost boards
    assert 0 in exhaustive.values()  # solved boards
    for board, moves in exhaustive.items():
        assert seen[board] == (25 if moves is None else min(moves, 25))


def test_shaping_of_sokoban_adds_up_to_a_difference_of_potentials(sokoban_walks):
    assert {outcome for _, outcome in sokoban_walks} == {Outcome.TERMINATED, Outcome.TRUNCATED}
    for boards, outcome in sokoban_walks:
        distances = [info["distance"] for info in boards]
        shaped = potential(episode(*distances, outcome=outcome), scale=0.1, discount=0.9)
        total = sum(0.9**turn * reward for turn, reward in enumerate(shaped))
        last = 0 if outcome is Outcome.TERMINATED else distances[-1]
        assert total == pytest.approx(0.1 * (distances[0] - 0.9 ** len(shaped) * last))


def test_a_solution_longer_than_the_episode_counts_as_none():
    env = SolutionLength(Sokoban(min_moves=12, max_steps=5))
    _, info = env.reset(seed=0)
    assert info["optimal"] >= 12
    assert info["distance"] == 5


def test_another_environment_has_no_length_of_a_solution():
    with pytest.raises(ConfigError, match="SolutionLength needs Sokoban-v0, not CartPoleEnv"):
        SolutionLength(gymnasium.make("CartPole-v1"))
