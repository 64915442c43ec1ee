"""Sampler that plays all tasks equally often: new seeds, or rows in a new order each epoch."""

from collections.abc import Sequence
from typing import ClassVar

from agentrl.training.sampling.task_pool import GroupTask
from agentrl.training.sampling.task_sampler import TaskSampler


class Uniform(TaskSampler):
    """Draws environments by weight, with new seeds; each data set row is played once per epoch."""

    about = "environments by their weights; within each, all tasks equally often"
    repeats: ClassVar[bool] = False

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """See TaskSampler."""
        return self.tasks.next_in_order(step, count, attempt)
