"""Chance that hangs on the seed and on what it is drawn for, never on the order of the calls."""

import numpy as np


def chance(seed: int, *where: int) -> np.random.Generator:
    """The dice for one event of one game.

    Args:
        seed: of the game, >= 0.
        *where: which event, such as the number of the move, each >= 0.
    """
    return np.random.default_rng((seed, *where))


def check(seed: int, **positive: int) -> None:
    """See whether a game of this seed and these sizes can be.

    Raises:
        ValueError: a negative seed, or a size below 1.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more.")
    for name, value in positive.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be 1 or more.")
