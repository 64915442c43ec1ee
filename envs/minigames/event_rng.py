"""Random numbers that depend on the seed and the event, never on the order of the calls."""

import numpy as np


def event_rng(seed: int, *where: int) -> np.random.Generator:
    """The random generator for one event of one game.

    Args:
        seed: the game's seed.
        *where: identifies the event, such as the index of the move; each >= 0.

    Raises:
        ValueError: negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more.")
    return np.random.default_rng((seed, *where))
