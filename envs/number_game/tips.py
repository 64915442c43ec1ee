"""The irrelevant lines about numbers or lamps that `distractor` puts on the screen.

They are drawn independently of the round's lamp and cards, and none contradicts the rules.
"""

from functools import lru_cache

import numpy as np

from agentrl.envs.number_game.rounds import LAMPS

_LINES = (
    "Tip: the largest card won last time.",
    "Tip: the smallest card is often right.",
    "Tip: {number} is a lucky number.",
    "Most players pick the first card.",
    "The last winner had picked {number}.",
    "Nobody has picked {number} for a while.",
    "The {lamp} lamp is the players' favourite.",
    "Yesterday the {lamp} lamp was lit {times} times.",
    "The number of the day is {number}.",
)
_STREAM = 2
"""Separates this random stream from others with the same seed; not 0, which seeds ignore."""


@lru_cache(maxsize=64)
def draw_tip(seed: int, index: int, numbers: range) -> str:
    """The line of one round.

    Args:
        seed: the game's seed.
        index: the round, from 0.
        numbers: the numbers that can appear on cards.
    """
    rng = np.random.default_rng((seed, index, _STREAM))
    line = _LINES[int(rng.integers(len(_LINES)))]
    return line.format(
        number=int(rng.choice(numbers)),
        lamp=LAMPS[int(rng.integers(len(LAMPS)))],
        times=int(rng.integers(2, 10)),
    )
