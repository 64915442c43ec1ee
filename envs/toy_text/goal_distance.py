"""A wrapper that adds the number of moves to the goal to the info of toy text environments."""

from collections.abc import Mapping, Sequence
from typing import Any, SupportsInt

import gymnasium

from agentrl.envs.toy_text.players import Transitions
from agentrl.errors import ConfigError


class GoalDistance(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds `info["distance"]`, the least number of moves that can reach the goal.

    The goal is any end of the episode with the highest reward. On slippery ice, each move counts as
    a lucky one. Where the goal cannot be reached, the distance is the number of states.

    Args:
        env: an environment with a table of transitions `P`, such as FrozenLake, CliffWalking or
            Taxi.

    Raises:
        ConfigError: the environment has no such table.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        if not isinstance(getattr(env.unwrapped, "P", None), Mapping):
            raise ConfigError(
                f"env.wrappers: GoalDistance needs a table of transitions `P`, which "
                f"{type(env.unwrapped).__name__} does not have; it is meant for FrozenLake, "
                "CliffWalking and Taxi"
            )
        self._table: Transitions | None = None
        self._distances: Sequence[int] = ()

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        return observation, self._with_distance(observation, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; at the goal, the distance is 0."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        info = self._with_distance(observation, info)
        if terminated and float(reward) == self._best:
            info["distance"] = 0
        return observation, reward, terminated, truncated, info

    def _with_distance(self, observation: SupportsInt, info: Mapping[str, Any]) -> dict[str, Any]:
        table: Transitions = self.env.unwrapped.P  # type: ignore[attr-defined]
        if table is not self._table:  # the map may be new in each episode
            self._table, self._best = table, best_end(table)
            self._distances = goal_distances(table)
        return {**info, "distance": self._distances[int(observation)]}


def best_end(transitions: Transitions) -> float:
    """Return the highest reward of a transition that ends the episode."""
    return max(
        float(reward)
        for by_action in transitions.values()
        for outcomes in by_action.values()
        for probability, _, reward, ends in outcomes
        if ends and probability > 0
    )


def goal_distances(transitions: Transitions) -> list[int]:
    """Return [states] the least number of moves to the best end; the number of states if none."""
    best, count = best_end(transitions), len(transitions)
    before: list[set[int]] = [set() for _ in range(count)]
    reached: set[int] = set()
    for state, by_action in transitions.items():
        for outcomes in by_action.values():
            for probability, after, reward, ends in outcomes:
                if probability > 0 and ends and float(reward) == best:
                    reached.add(state)
                elif probability > 0 and not ends:
                    before[after].add(state)
    distances, moves = [count] * count, 0
    while reached:
        moves += 1
        for state in reached:
            distances[state] = moves
        reached = {one for state in reached for one in before[state] if distances[one] == count}
    return distances
