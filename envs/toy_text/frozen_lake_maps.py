"""Gymnasium's FrozenLake with a new map in each episode."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from agentrl import extras
from agentrl.envs.picture_colors import check_colors, in_colors
from agentrl.errors import ConfigError, InvalidArgument
from agentrl.text.formatting import hash_fraction

SPLITS = ("all", "train", "eval")
_MOST_DRAWS = 1000
_DRAWN = ("window_surface", "clock", "ice_img", "ice_crack_imgs", "hole_img", "agent_img",
          "goal_flag_img", "letter_s_img", "letter_g_img")  # fmt: skip
"""Attributes in which `FrozenLakeEnv` keeps what it has loaded for drawing."""


class FrozenLakeMaps(FrozenLakeEnv):
    """Cross a frozen lake whose map depends on the seed.

    Observation, actions, rewards and pictures are those of `FrozenLake-v1`. The observation is only
    the square, so show the model the picture: `env.translator_kwargs: {show: render}`.

    `info` holds, besides Gymnasium's, `map` (its rows, joined by line breaks), `player` (row and
    column of the square), `state_key` (map and square) and `metrics`: `success`.

    Args:
        size: rows and columns of the map.
        frozen: probability that a square is ice, not a hole. Each map has a way to the goal.
        split: `all` maps, or only `train` or `eval` maps. A map and its mirror image along the
            diagonal from start to goal belong to the same split.
        held_out: the share of maps that belong to `eval`.
        is_slippery: whether a move may go sideways.
        success_rate: probability of moving in the chosen direction on a slippery lake.
        reward_schedule: rewards of the goal, of a hole and of ice.
        colors: `normal` as in Gymnasium, or `inverted`.
        render_mode: as in `FrozenLake-v1`; `rgb_array` needs pygame.

    Raises:
        ConfigError: an invalid argument.
    """

    def __init__(
        self,
        size: int = 4,
        frozen: float = 0.8,
        split: str = "all",
        held_out: float = 0.2,
        is_slippery: bool = True,
        success_rate: float = 1.0 / 3.0,
        reward_schedule: Sequence[float] = (1, 0, 0),
        colors: str = "normal",
        render_mode: str | None = None,
    ) -> None:
        if not 3 <= size <= 16:
            raise InvalidArgument("size", size, "from 3 to 16")
        if not 0.0 < frozen <= 1.0:
            raise InvalidArgument("frozen", frozen, "a probability above 0")
        if split not in SPLITS:
            raise InvalidArgument("split", split, f"one of {', '.join(SPLITS)}")
        if not 0.0 < held_out < 1.0:
            raise InvalidArgument("held_out", held_out, "a share between 0 and 1")
        if len(reward_schedule) != 3:
            expected = "three rewards: of the goal, of a hole and of ice"
            raise InvalidArgument("reward_schedule", reward_schedule, expected)
        check_colors(colors)
        if render_mode not in (None, "ansi") and find_spec("pygame") is None:
            raise ConfigError(
                f"the picture needs pygame, which is not installed; run: "
                f"{extras.installation_of('pygame')}"
            )
        self._size, self._frozen, self._colors = size, frozen, colors
        self._split, self._held_out = split, held_out
        self._rules: dict[str, Any] = {
            "is_slippery": is_slippery,
            "success_rate": success_rate,
            "reward_schedule": tuple(reward_schedule),
        }
        super().__init__(render_mode, ["S" + "F" * (size - 1), *["F" * size] * (size - 2),
                                       "F" * (size - 1) + "G"], **self._rules)  # fmt: skip

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check the arguments, before any episode runs.

        Raises:
            ConfigError: like the constructor.
        """
        cls(**kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start on the map of this seed, by default of a random one."""
        super().reset(seed=seed)
        drawn = {name: getattr(self, name) for name in _DRAWN}
        rows = self._draw_map()
        super().__init__(self.render_mode, rows, **self._rules)
        vars(self).update(drawn)
        self._map = "\n".join(rows)
        observation, info = super().reset()
        return observation, self._with_map(info)

    def step(self, a: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move by one square, or stay at the edge."""
        observation, reward, terminated, truncated, info = super().step(a)  # type: ignore[no-untyped-call]
        return observation, float(reward), terminated, truncated, self._with_map(info)

    def render(self) -> Any:
        """Return Gymnasium's picture or text, with inverted colors if `colors` says so."""
        shown = super().render()  # type: ignore[no-untyped-call]
        return in_colors(shown, self._colors) if isinstance(shown, np.ndarray) else shown

    def _draw_map(self) -> list[str]:
        for _ in range(_MOST_DRAWS):
            seed = int(self.np_random.integers(2**31))
            rows = generate_random_map(self._size, self._frozen, seed)
            if self._split == "all":
                return rows
            if (_position(tuple(rows)) < self._held_out) == (self._split == "eval"):
                return rows
        raise ConfigError(
            f"none of {_MOST_DRAWS:,} maps belongs to the split {self._split!r}, as there are few "
            f"with size={self._size} and frozen={self._frozen}; change these or held_out"
        )

    def _with_map(self, info: dict[str, Any]) -> dict[str, Any]:
        row, column = divmod(int(self.s), self._size)
        on_goal = self._map.split("\n")[row][column] == "G"
        return {
            **info,
            "map": self._map,
            "player": [row, column],
            "state_key": f"{self._map}\n{self.s}",
            "metrics": {"success": float(on_goal)},
        }


@lru_cache(maxsize=1 << 14)
def _position(rows: tuple[str, ...]) -> float:
    """Return a number in [0, 1) that is the same for a map and its mirror image."""
    mirrored = ("".join(column) for column in zip(*rows, strict=True))
    return hash_fraction(min("\n".join(rows), "\n".join(mirrored)))
