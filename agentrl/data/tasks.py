"""One question with its answer, and where the questions of a job come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image

_BLOCK = 1_000_000
"""The seeds of a job's parts, such as its training or its evaluation, begin at whole millions."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Task:
    """A question, what it shows, and what is right."""

    name: str
    """Tells it from the others of its source: a row, or a seed."""
    problem: str
    """The words; `<image>` stands once for each picture."""
    accepted: tuple[str, ...]
    """All right answers, the first of which is the usual one."""
    images: tuple[Image, ...] = ()
    options: tuple[str, ...] = ()
    """Of a multiple choice, A first."""
    guesses: tuple[str, ...] = ()
    """Answers that somebody could give who looks at nothing."""
    thought: str = ""
    """How one comes to the answer, for players; may be empty."""
    slip: tuple[str, str] | None = None
    """A habitual mistake, for players: the thought and the answer that it leads to."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The truth behind the question, recorded and never shown."""

    @property
    def answer(self) -> str:
        """The usual right answer."""
        return self.accepted[0]


class Source(Protocol):
    """Where questions come from: the same seed gives the same question, always."""

    def task(self, seed: int) -> Task:
        """The question of a seed."""


def row_of(seed: int, count: int, shuffle: int | None) -> int:
    """Which of some rows a seed stands for.

    Consecutive seeds go through all rows in a new order each time, so whoever knows the seed of a
    step knows its rows: there is no position to keep, and none to lose when a run is resumed.
    Within a block of a million seeds, which begins at a whole million as the seeds of training and
    of evaluation do, each run of `count` seeds visits every row once.

    Args:
        seed: not negative.
        count: rows.
        shuffle: names the orders; None takes the rows as they stand.

    Returns:
        In [0, count).
    """
    block, place = divmod(seed, _BLOCK)
    epoch, place = divmod(place, count)
    return place if shuffle is None else int(_order(count, shuffle, block, epoch)[place])


@lru_cache(maxsize=16)
def _order(count: int, shuffle: int, block: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([shuffle, block, epoch]).permutation(count)
