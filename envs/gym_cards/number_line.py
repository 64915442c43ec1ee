"""NumberLine of gym-cards (arXiv:2405.10292) as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.envs.gym_cards.drawing import BOLD, SIDE, draw_number_line, font
from agentrl.envs.picture_colors import check_colors, in_colors
from agentrl.errors import InvalidArgument
from agentrl.types import Image

MOVES = ("left", "right")
CLOSER, NOT_CLOSER, REACHED = 0.0, -1.0, 1.0
"""Rewards of a move."""


class NumberLine(gymnasium.Env[Image, Any]):
    """Move along a line of whole numbers from the current one to the target.

    Observation: a picture uint8[300, 300, 3] with both numbers. Actions: `Discrete(2)`, left and
    right; at the ends of the line nothing moves. Reward: 1 at the target, which ends the episode, 0
    for a move that brings it closer, else -1. The episode is truncated after `2 * max_position`
    moves.

    `info` holds `target`, `current`, `moves`, `state_key` (both numbers) and `metrics`: `success`.
    `reset(options={"current": 0, "target": 5})` chooses the start.

    Args:
        max_position: the right end of the line, whose left end is 0.
        colors: `normal` as in gym-cards, or `inverted`.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: an invalid argument, or a font is missing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self, max_position: int = 5, colors: str = "normal", render_mode: str | None = None
    ) -> None:
        # With one move at most, start and target of the published rules may be equal.
        if not 2 <= max_position <= 9999:
            raise InvalidArgument("max_position", max_position, "from 2 to 9999")
        check_colors(colors)
        if render_mode not in (None, "rgb_array"):
            raise InvalidArgument("render_mode", render_mode, "rgb_array or None")
        font(BOLD, 36)
        self.max_position = max_position
        self.colors, self.render_mode = colors, render_mode
        self.action_space = spaces.Discrete(len(MOVES))
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check the arguments, before any episode runs.

        Raises:
            ConfigError: like the constructor.
        """
        cls(**kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Draw the first position and the target, which are different."""
        super().reset(seed=seed)
        current, target = (int(self.np_random.integers(self.max_position + 1)) for _ in range(2))
        if current == target:
            target = (target + 1) % self.max_position
        self._current, self._target = current, target
        if options:
            self._current, self._target = options["current"], options["target"]
        self._moves = 0
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Move by one, unless that leaves the line."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not an action; use 0 (left) or 1 (right)")
        before = abs(self._current - self._target)
        moved = self._current + (1 if action == 1 else -1)
        self._current = min(max(moved, 0), self.max_position)
        self._moves += 1
        distance = abs(self._current - self._target)
        reached = distance == 0
        reward = REACHED if reached else CLOSER if distance < before else NOT_CLOSER
        truncated = not reached and self._moves >= 2 * self.max_position
        return self._observed(), reward, reached, truncated, self._info()

    def render(self) -> Image | None:
        """Return the picture, if `render_mode` is `rgb_array`."""
        return self._observed() if self.render_mode == "rgb_array" else None

    def _observed(self) -> Image:
        picture = draw_number_line(self._target, self._current).copy()  # cached
        return in_colors(picture, self.colors)

    def _info(self) -> dict[str, Any]:
        return {
            "target": self._target,
            "current": self._current,
            "moves": self._moves,
            "state_key": f"{self._current} {self._target}",
            "metrics": {"success": float(self._current == self._target)},
        }
