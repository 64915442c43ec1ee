"""EZPoints of gym-cards (arXiv:2405.10292) as a Gymnasium environment."""

import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.envs.gym_cards.drawing import RANKS, REGULAR, SIDE, SUITS, draw_points, font
from agentrl.envs.picture_colors import check_colors, in_colors
from agentrl.errors import InvalidArgument
from agentrl.types import Image

TARGET = 12
"""Value that the formula must have."""
NUMBERS = tuple(range(1, 11))
SYMBOLS = (*map(str, NUMBERS), "+", "*", "=")
"""Names of the actions."""
MOST_PARTS = 5
"""With more parts in the formula, the next action truncates the episode."""
SOLVED, WRONG = 10.0, -1.0
"""Rewards of the last action; an invalid number also costs 1."""
UNUSED = " "
"""What an invalid number adds to the formula."""

# gym-cards evaluates formulas as Python expressions, in which spaces and plus signs before a number
# do not count. Everything else is an error, or a power, which is never 12.
_FORMULA = re.compile(r"[ +]*(\d+) *([+*])[ +]*(\d+) *")


class EZPoints(gymnasium.Env[Image, Any]):
    """Write a formula that uses both cards and is worth 12, one number or operator at a time.

    Observation: a picture uint8[300, 300, 3] of two cards and the formula. Actions: `Discrete(13)`,
    the numbers 1 to 10, `+`, `*` and `=`; jacks, queens and kings count 10, aces 1. Reward: 10 if
    `=` completes a right formula, -1 if it completes a wrong one or one that does not use both
    cards, and -1 for a number that is on neither card or already used, which adds a space to the
    formula. `=` ends the episode; with six parts in the formula, any action costs 1 and truncates.

    `info` holds `cards` (suit and rank, such as `H7`), `numbers`, `formula` (its parts),
    `state_key` (numbers and formula) and `metrics`: `success`.
    `reset(options={"cards": ["H7", "S5"]})` chooses the cards.

    Args:
        colors: `normal` as in gym-cards, or `inverted`.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: an invalid argument, or a font is missing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's

    def __init__(self, colors: str = "normal", render_mode: str | None = None) -> None:
        check_colors(colors)
        if render_mode not in (None, "rgb_array"):
            raise InvalidArgument("render_mode", render_mode, "rgb_array or None")
        font(REGULAR, 20)
        self.colors, self.render_mode = colors, render_mode
        self.action_space = spaces.Discrete(len(SYMBOLS))
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
        """Deal two cards whose sum or product is 12."""
        super().reset(seed=seed)
        self._cards = self._deal()
        if options:
            self._cards = tuple(options["cards"])
        self._numbers = [min(RANKS.index(card[1]) + 1, 10) for card in self._cards]
        self._formula: list[str] = []
        self._success = False
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Append a part to the formula, or evaluate it."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not an action; use 0 to {len(SYMBOLS) - 1}")
        part = SYMBOLS[action]
        reward, terminated, truncated = 0.0, False, False
        if len(self._formula) > MOST_PARTS:
            reward, truncated = WRONG, True
        elif part == "=":
            self._success = is_right(self._formula)
            reward, terminated = SOLVED if self._success else WRONG, True
        elif part.isdigit() and int(part) not in unused(self._numbers, self._formula):
            self._formula.append(UNUSED)
            reward = WRONG
        else:
            self._formula.append(part)
        return self._observed(), reward, terminated, truncated, self._info()

    def render(self) -> Image | None:
        """Return the picture, if `render_mode` is `rgb_array`."""
        return self._observed() if self.render_mode == "rgb_array" else None

    def _deal(self) -> tuple[str, ...]:
        rng = self.np_random
        rank = int(rng.integers(2, 14))
        value = min(rank, 10)
        divides = TARGET % value == 0
        other = TARGET // value if divides and rng.random() <= 0.5 else TARGET - value
        suits = rng.choice(list(SUITS), 2)
        cards = [f"{suit}{RANKS[r - 1]}" for suit, r in zip(suits, (rank, other), strict=True)]
        return tuple(cards[::-1] if rng.random() <= 0.5 else cards)

    def _observed(self) -> Image:
        picture = draw_points(self._cards, " ".join(self._formula))
        return in_colors(picture, self.colors)

    def _info(self) -> dict[str, Any]:
        return {
            "cards": list(self._cards),
            "numbers": list(self._numbers),
            "formula": list(self._formula),
            "state_key": f"{self._numbers} {self._formula}",
            "metrics": {"success": float(self._success)},
        }


def unused(numbers: Sequence[int], formula: Sequence[str]) -> list[int]:
    """Return the numbers of the cards that the formula does not use yet."""
    left = list(numbers)
    for part in formula:
        if part.isdigit():
            left.remove(int(part))
    return left


def is_right(formula: Sequence[str]) -> bool:
    """Return whether a formula uses both cards and is worth 12."""
    if sum(part.isdigit() for part in formula) != 2:
        return False
    found = _FORMULA.fullmatch("".join(formula))
    if found is None:
        return False
    first, second = int(found[1]), int(found[3])
    return (first + second if found[2] == "+" else first * second) == TARGET
