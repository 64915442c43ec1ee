"""Optimal players of Gymnasium's FrozenLake, CliffWalking and Taxi, by value iteration.

They read the state from the observation, which is its number, and the rules from the environment's
own table of transitions, `P`.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from numpy.typing import NDArray

from agentrl.actions.action_chunks import join_actions
from agentrl.actions.space_formats import action_format_for

Transitions = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]
"""By state and action: the probability of each outcome, the next state, the reward, and whether the
episode ends."""

_DISCOUNT = 0.999
_TOLERANCE = 1e-10


def optimal_actions(transitions: Transitions, discount: float = _DISCOUNT) -> NDArray[np.intp]:
    """Return the best action of each state, by value iteration.

    Args:
        transitions: the environment's table `P`.
        discount: below 1, so that a shorter way to the same reward is better.

    Returns:
        [states] the action with the highest value; the first one if several are equal.
    """
    states, actions = len(transitions), len(transitions[0])
    rewards = np.zeros((states, actions))
    following = np.zeros((states, actions, states))
    for state, of_state in transitions.items():
        for action, outcomes in of_state.items():
            for probability, after, reward, ends in outcomes:
                rewards[state, action] += probability * reward
                following[state, action, after] += 0.0 if ends else probability
    values, change = np.zeros(states), np.inf
    while change > _TOLERANCE:
        worth = rewards + discount * (following @ values)
        change = float(np.abs(worth.max(axis=1) - values).max())
        values = worth.max(axis=1)
    # Round, so that equally good actions do not depend on the order of additions.
    best: NDArray[np.intp] = worth.round(8).argmax(axis=1)
    return best


class FrozenLakeExpert:
    """Takes the way to the goal that most probably gets there, also in `FrozenLakeMaps-v0`.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions; this and `style` must match the translator's.
        style: `tag` or `tool`.
        desc: rows of the map; this and the other arguments are the environment's.
        map_name: name of Gymnasium's map, used without `desc`.
        is_slippery: whether a move may go sideways.
        success_rate: probability of moving in the chosen direction on a slippery lake.
        max_actions_per_reply: a reply has the moves to the goal, but not more than this; only one
            on a slippery lake, where the next square is not known. Filled in automatically.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Any = None,
        style: str = "tag",
        desc: Sequence[str] | None = None,
        map_name: str = "4x4",
        is_slippery: bool = True,
        success_rate: float = 1.0 / 3.0,
        max_actions_per_reply: int = 1,
    ) -> None:
        self._action_format = action_format_for(action_space, names, None, style)
        self._rows = tuple(desc or MAPS[map_name])
        self._rules = (is_slippery, success_rate)
        self._most = 1 if is_slippery else max_actions_per_reply

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator, observation: int) -> str:
        """Return the best moves from a square, on the map of `info` if it has one."""
        rows = tuple(info["map"].split("\n")) if "map" in info else self._rows
        moves = _lake_way(rows, self._rules, observation, self._most)
        return join_actions(self._action_format.format(move) for move in moves)


class _OneTableExpert:
    """Takes the best action of an environment whose rules are the same in each episode."""

    def __init__(
        self,
        actions: NDArray[np.intp],
        action_space: "gymnasium.Space[Any]",
        names: Any,
        style: str,
    ) -> None:
        self._actions = actions
        self._action_format = action_format_for(action_space, names, None, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator, observation: int) -> str:
        """Return the best action in a state."""
        return self._action_format.format(int(self._actions[observation]))


class CliffWalkingExpert(_OneTableExpert):
    """Walks along the cliff to the goal.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions; this and `style` must match the translator's.
        style: `tag` or `tool`.
        is_slippery: the environment's argument.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Any = None,
        style: str = "tag",
        is_slippery: bool = False,
    ) -> None:
        super().__init__(_cliff_actions(is_slippery), action_space, names, style)


class TaxiExpert(_OneTableExpert):
    """Fetches the passenger and delivers them, both on the shortest way.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions; this and `style` must match the translator's.
        style: `tag` or `tool`.
        is_rainy: the environment's argument.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Any = None,
        style: str = "tag",
        is_rainy: bool = False,
    ) -> None:
        super().__init__(_taxi_actions(is_rainy), action_space, names, style)


def _lake_way(
    rows: tuple[str, ...], rules: tuple[bool, float], square: int, most: int
) -> list[int]:
    """Return the best moves from a square until the episode ends, at least one and at most `most`.

    Each move goes where it most probably leads.
    """
    transitions, best = _lake(rows, *rules)
    moves, ends = list[int](), False
    while not ends and len(moves) < most:
        moves.append(int(best[square]))
        _, square, _, ends = max(transitions[square][moves[-1]], key=itemgetter(0))
    return moves


@lru_cache(maxsize=4096)
def _lake(
    rows: tuple[str, ...], is_slippery: bool, success_rate: float
) -> tuple[Transitions, NDArray[np.intp]]:
    lake = FrozenLakeEnv(desc=list(rows), is_slippery=is_slippery, success_rate=success_rate)
    return lake.P, optimal_actions(lake.P)


@cache
def _cliff_actions(is_slippery: bool) -> NDArray[np.intp]:
    return optimal_actions(CliffWalkingEnv(is_slippery=is_slippery).P)


@cache
def _taxi_actions(is_rainy: bool) -> NDArray[np.intp]:
    return optimal_actions(TaxiEnv(is_rainy=is_rainy).P)
