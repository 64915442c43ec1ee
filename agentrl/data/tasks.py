"""A question with its answer, and the protocol of sources that provide questions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

_BLOCK = 1_000_000
"""Seeds of a job's parts, such as training and evaluation, begin at multiples of a million."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Task:
    """A question, its images, and the accepted answers."""

    name: str
    """Identifies it within its source: a row, or a seed."""
    problem: str
    """The text, with one `<image>` per image."""
    accepted: tuple[str, ...]
    """All accepted answers, the canonical one first."""
    images: tuple[Image, ...] = ()
    options: tuple[str, ...] = ()
    """Of a multiple-choice question, A first."""
    guesses: tuple[str, ...] = ()
    """Plausible answers for players that guess without looking."""
    thought: str = ""
    """The reasoning that leads to the answer, for scripted players; may be empty."""
    slip: tuple[str, str] | None = None
    """A typical mistake, for scripted players: the reasoning and the wrong answer."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Ground truth behind the question, recorded and never shown."""

    @property
    def answer(self) -> str:
        """The canonical answer."""
        return self.accepted[0]


class TaskSource(Protocol):
    """Provides questions; the same seed always gives the same question."""

    def task(self, seed: int) -> Task:
        """The question of a seed."""


def row_of(seed: int, count: int, shuffle: int | None) -> int:
    """The row for a seed.

    Consecutive seeds visit all rows in a new order each epoch. The row depends only on the seed, so
    a resumed run has no sampler position to restore. Within a block of a million seeds (training
    and evaluation begin at multiples of a million), each epoch of `count` seeds visits every row
    once.

    Args:
        seed: not negative.
        count: number of rows.
        shuffle: seed of the orders; None keeps the order of the rows.

    Returns:
        In [0, count).
    """
    block, position = divmod(seed, _BLOCK)
    epoch, position = divmod(position, count)
    return position if shuffle is None else int(_order(count, shuffle, block, epoch)[position])


@lru_cache(maxsize=16)
def _order(count: int, shuffle: int, block: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([shuffle, block, epoch]).permutation(count)
