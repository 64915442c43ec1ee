"""Every task equally often: new seeds, or the rows of a data set in a new order each epoch."""

from collections.abc import Sequence
from typing import ClassVar

from agentrl.training.sampling.task_sampler import GroupTask, TaskSampler


class Uniform(TaskSampler):
    """Each environment by its weight, and new seeds: all rows of a data set once per epoch."""

    about = "each environment by its weight, all of its tasks equally often"
    repeats: ClassVar[bool] = False

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """See TaskSampler."""
        tasks = self.tasks
        if self.config.pool is not None:
            return tasks.draw(tasks.weights, step, count, attempt)
        fresh = tasks.fresh_seeds(step, attempt)[:count]
        if len(tasks.sets) == 1:
            return [GroupTask(env=tasks.sets[0].env, seed=seed) for seed in fresh]
        return tasks.draw(tasks.weights, step, count, attempt)
