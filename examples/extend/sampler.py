"""A task sampler of your own: begins with the easiest task and unlocks the others one by one.

agentrl check sampler sampler.py:Staircase share=0.5
agentrl train CONFIG sampling=sampler.py:Staircase sampling.pool=100
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.config import SamplerConfig
from agentrl.training.sampling.task_sampler import GroupTask, PlayedTask, TaskSampler


class Staircase(TaskSampler):
    """Opens the next task when half of a step's episodes succeed; the first are the easiest."""

    about = "tasks in their order, the next one when the open ones are solved"

    @dataclass(slots=True, kw_only=True)
    class Config(SamplerConfig):
        """How fast tasks are opened."""

        share: float = 0.5
        """The solve rate of a step that opens the next task."""
        others: float = 0.1
        """The part of the groups that any task may have, so that none starves."""

    num_open = 1

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """Draw among the open tasks, and sometimes among all."""
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
        """The number of open tasks."""
        return {"sampling/open_tasks": float(self.num_open)}

    def state(self) -> dict[str, Any]:
        """What a resumed job continues from."""
        return {"num_open": self.num_open}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See TaskSampler."""
        self.num_open = state.get("num_open", 1)
