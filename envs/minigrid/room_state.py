"""A wrapper that adds the true state of a MiniGrid room to its info, for players and prompts."""

from typing import Any

import gymnasium

from agentrl.errors import ConfigError


class RoomState(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds `info["room"]` and `info["mission"]`.

    `room` holds `cells[x][y]` = (object, color, state), numbers as in MiniGrid's `Grid.encode`, the
    agent's `position` (x, y) and `direction` (0 right, 1 down, 2 left, 3 up), and `carrying`, the
    object and color that it carries, or None.

    Args:
        env: an environment of MiniGrid.

    Raises:
        ConfigError: the environment is not of MiniGrid.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        if not hasattr(env.unwrapped, "grid") or not hasattr(env.unwrapped, "agent_dir"):
            raise ConfigError(
                f"env.wrappers: RoomState is meant for MiniGrid, but this environment is "
                f"{type(env.unwrapped).__name__}"
            )

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        return observation, {**info, **self._state()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a move."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, **self._state()}

    def _state(self) -> dict[str, Any]:
        room: Any = self.env.unwrapped
        carried = room.carrying
        return {
            "mission": str(room.mission),
            "room": {
                "cells": room.grid.encode().tolist(),
                "position": [int(number) for number in room.agent_pos],
                "direction": int(room.agent_dir),
                "carrying": None if carried is None else list(carried.encode()[:2]),
            },
        }
