"""Chance that hangs on the seed and on what it is drawn for, never on the order of the calls."""

import numpy as np


def chance(seed: int, *where: int) -> np.random.Generator:
    """The dice for one event of one game.

    Args:
        seed: of the game.
        *where: which event, such as the number of the move, each >= 0.

    Raises:
        ValueError: a negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more.")
    return np.random.default_rng((seed, *where))
