"""A question with its answers, and the mapping from seeds to rows of a data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentrl.types import Image, Message

# Evaluation seeds begin at multiples of a million.
_BLOCK = 1_000_000
FIRST_LEARNED_SEED = 100_000_000
"""First seed of demonstrations and training; smaller seeds are held out."""
SEED_RANGE = 5_000_000
"""Number of seeds for a run's demonstrations, and likewise for its training."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Task:
    """A question, its images, and the accepted answers."""

    name: str
    """Name of the row or seed, unique within its source."""
    problem: str
    """Text of the question, with an `<image>` for each of its own images."""
    accepted: tuple[str, ...]
    """All accepted answers, the canonical one first; empty if the data has no answers."""
    images: tuple[Image, ...] = ()
    system: str | None = None
    """The system message; may be empty. None for a bare text without messages, template or system
    message: the environment then explains how to answer."""
    preceding: tuple[Message, ...] = ()
    """Earlier questions and replies of the conversation, alternating, without the system message.
    Their images come first in `images`."""
    options: tuple[str, ...] = ()
    """Choices of a multiple-choice question, A first."""
    guesses: tuple[str, ...] = ()
    """Plausible answers for players that guess blindly."""
    thought: str = ""
    """The reasoning that leads to the answer, for scripted players; may be empty."""
    slip: tuple[str, str] | None = None
    """A typical mistake, for scripted players: the reasoning and the wrong answer."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Ground truth behind the question, recorded but never shown."""
    ground_truth: Any = None
    """The answer as an object that only a reward function can grade; None for text answers."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the row, for reward functions; see `columns_for_rewards`."""
    image_column: str | None = None
    """Name of the column that held the images."""

    @property
    def answer(self) -> str:
        """The canonical answer."""
        return self.accepted[0]


class TaskSource(Protocol):
    """Provides questions; the same seed always gives the same question."""

    def task(self, seed: int) -> Task:
        """Return the question for a seed."""


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
