"""Plays every task equally often: new seeds, or data set rows in a new order each epoch."""

from collections.abc import Sequence
from typing import ClassVar

from agentrl.training.sampling.task_sampler import GroupTask, TaskSampler


class Uniform(TaskSampler):
    """Draws environments by weight and new seeds: all rows of a data set once per epoch."""

    about = "each environment by its weight, all of its tasks equally often"
    repeats: ClassVar[bool] = False

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """See TaskSampler."""
        return self.tasks.next_in_order(step, count, attempt)
