"""The difficulty settings of the number game, and the rounds and tips drawn for a level."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl.envs.android.phone_game.level_settings import LevelSettings, as_extra, one_of, switch


@dataclass(slots=True, kw_only=True, frozen=True)
class NumberGameLevel(LevelSettings):
    """The difficulty of a number game. The settings are independent of each other."""

    memory: bool = switch()
    """The lamp is shown before the cards and goes out when they are turned."""
    digits: int = one_of(1, range(1, 3), "1 (numbers from 1 to 9) or 2 (from 10 to 99)")
    cards: int = one_of(3, range(3, 5), "3 or 4")
    """With four cards, yellow asks for the second largest."""
    moved: bool = switch()
    """Cards, button and text change their positions every round."""
    distractor: bool = switch()
    """The screen shows an irrelevant line about numbers or lamps."""
    timed: int = one_of(
        0, range(10**9), "an integer >= 0 (touches per round; 0 turns the clock off)"
    )
    """Touches until a round is lost; 0: no limit."""

    @property
    def numbers(self) -> range:
        """The numbers that can appear on a card."""
        return range(1, 10) if self.digits == 1 else range(10, 100)

    def extras(self) -> dict[str, str]:
        """Return the launch extras; always includes `memory`, as extras seed the clock."""
        return {"memory": as_extra(self.memory), **LevelSettings.extras(self)}


LAMPS = ("green", "yellow", "red")
"""Lamps from left to right on the screen."""
PLAIN = NumberGameLevel()
_RANK = {"green": -1, "yellow": -2, "red": 0}
"""Index of the number that a lamp asks for, in ascending order."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Round:
    """The task of one round."""

    lamp: str
    numbers: tuple[int, ...]

    @property
    def answer(self) -> int:
        """Index of the right card."""
        return self.numbers.index(sorted(self.numbers)[_RANK[self.lamp]])


def draw_rounds(seed: int, rounds: int, level: NumberGameLevel = PLAIN) -> tuple[Round, ...]:
    """Draw the rounds of a seed's game; a shorter game has a prefix of a longer game's rounds."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(rounds):
        lamp = LAMPS[int(rng.integers(len(LAMPS)))]
        indices = rng.choice(len(level.numbers), size=level.cards, replace=False)
        drawn.append(Round(lamp=lamp, numbers=tuple(level.numbers[int(i)] for i in indices)))
    return tuple(drawn)


_LINES = (
    "Tip: the largest card won last time.",
    "Tip: the smallest card is often right.",
    "Tip: {number} is a lucky number.",
    "Most players pick the first card.",
    "The last winner had picked {number}.",
    "Nobody has picked {number} for a while.",  # codespell:ignore nobody
    "The {lamp} lamp is the players' favourite.",
    "Yesterday the {lamp} lamp was lit {times} times.",
    "The number of the day is {number}.",
)
_STREAM = 2
"""Separates this random stream from others with the same seed; NumPy would ignore a final 0."""


@lru_cache(maxsize=64)
def draw_tip(seed: int, index: int, numbers: range) -> str:
    """Draw the tip of a round, counted from 0, about the numbers that can appear on cards."""
    rng = np.random.default_rng((seed, index, _STREAM))
    line = _LINES[int(rng.integers(len(_LINES)))]
    return line.format(
        number=int(rng.choice(numbers)),
        lamp=LAMPS[int(rng.integers(len(LAMPS)))],
        times=int(rng.integers(2, 10)),
    )
