"""A task sampler of your own: starts with the easiest task and unlocks the others one by one.

agentrl check sampler sampler.py:Staircase share=0.5
agentrl train CONFIG sampling=sampler.py:Staircase sampling.pool=100
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.config import SamplerConfig
from agentrl.training.sampling.task_pool import GroupTask
from agentrl.training.sampling.task_sampler import PlayedTask, TaskSampler


class Staircase(TaskSampler):
    """Opens the next task, from easy to hard, once enough of a step's episodes succeed."""

    about = "tasks in their order, the next one when the open ones are solved"

    @dataclass(slots=True, kw_only=True)
    class Config(SamplerConfig):
        """How quickly to open tasks."""

        share: float = 0.5
        """Solve rate of a step at which the next task opens."""
        others: float = 0.1
        """Share of groups drawn from all tasks, open or not, so that no task starves."""

    num_open = 1

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """Draw from the open tasks, and sometimes from all tasks."""
        weights = self.tasks.weights
        is_open = np.arange(len(weights)) < self.num_open
        chosen = weights * is_open / (weights * is_open).sum()
        others = self.config.others
        return self.tasks.draw((1 - others) * chosen + others * weights, step, count, attempt)

    def observe(self, step: int, played: Sequence[PlayedTask]) -> None:
        """Open another task if enough episodes succeeded."""
        counts = [one.successes(self.config.success_at) for one in played]
        solved, valid = sum(len(found) for found, _ in counts), sum(valid for _, valid in counts)
        if solved >= self.config.share * max(1, valid):
            self.num_open = min(len(self.tasks), self.num_open + 1)

    def metrics(self) -> Mapping[str, float]:
        """Return the number of open tasks."""
        return {"sampling/open_tasks": float(self.num_open)}

    def state(self) -> dict[str, Any]:
        """Return the state from which a resumed job continues."""
        return {"num_open": self.num_open}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        self.num_open = state.get("num_open", 1)
