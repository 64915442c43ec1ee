"""A wrapper that adds the length of a shortest solution to the info of Sokoban."""

from typing import Any

import gymnasium

from agentrl.envs.sokoban.env import Sokoban
from agentrl.envs.sokoban.players import solution
from agentrl.errors import ConfigError


class SolutionLength(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds `info["distance"]`, the moves of a shortest solution from the current board.

    The solver computes it, so an agent that is rewarded for a smaller distance is trained with
    knowledge that the screen does not show. A board whose solution is longer than the episode, or
    not found, has the distance `max_steps`.

    Args:
        env: `Sokoban-v0`.

    Raises:
        ConfigError: another environment.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, Sokoban):
            raise ConfigError(
                f"env.wrappers: SolutionLength needs Sokoban-v0, not "
                f"{type(env.unwrapped).__name__}; remove it, or write a wrapper that sets "
                'info["distance"]'
            )
        self._most = env.unwrapped.max_steps

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start a level."""
        observation, info = self.env.reset(**kwargs)
        return observation, self._with_distance(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Move; on a solved board, the distance is 0."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, self._with_distance(info)

    def _with_distance(self, info: dict[str, Any]) -> dict[str, Any]:
        moves = 0 if info["success"] else len(solution(info["board"])) or self._most
        return {**info, "distance": min(moves, self._most)}
