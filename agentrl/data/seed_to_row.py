"""Which row of a data set a seed shows: ranges of seeds, and the order of rows in an epoch."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Evaluation seeds begin at multiples of a million.
_BLOCK = 1_000_000
FIRST_LEARNED_SEED = 100_000_000
"""First seed of demonstrations and training; smaller seeds are held out."""
SEED_RANGE = 5_000_000
"""Number of seeds for a run's demonstrations, and likewise for its training."""


def row_of(seed: int, count: int, shuffle: int | None) -> int:
    """Return the row for a seed.

    Consecutive seeds visit all rows in a new order each epoch: within a run's training range, or a
    million held-out seeds, each epoch of `count` seeds visits every row once.

    Args:
        seed: a non-negative seed.
        count: number of rows.
        shuffle: seed of the row orders; None keeps the rows in order.
    """
    size = _BLOCK if seed < FIRST_LEARNED_SEED else SEED_RANGE
    epoch, position = divmod(seed % size, count)
    if shuffle is None:
        return position
    block = (seed - seed % size) // _BLOCK
    return int(_order(count, shuffle, block, epoch)[position])


@lru_cache(maxsize=16)
def _order(count: int, shuffle: int, block: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([shuffle, block, epoch]).permutation(count)
