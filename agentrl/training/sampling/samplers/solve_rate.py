"""Sampler that prefers tasks solved about half the time, from which groups learn the most."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le, Lt
from numpy.typing import NDArray

from agentrl.config import SamplerConfig
from agentrl.config.bounds import PositiveFloat
from agentrl.errors import ConfigError
from agentrl.training.sampling.task_pool import GroupTask
from agentrl.training.sampling.task_sampler import PlayedTask, TaskSampler

_FORGOTTEN = 1e-3
"""Decayed number of episodes below which a task's counts are dropped."""
_log_gamma = np.frompyfunc(math.lgamma, 1, 1)


class SolveRate(TaskSampler):
    """Prefers tasks whose solve rate is close to a target, but plays every task occasionally.

    The variance of a group's returns, p(1 - p), and thus the learning signal of algorithms that
    compare the episodes of a group, is largest at a solve rate p of 1/2. Each task has a Beta
    posterior of p, from a uniform prior and past episodes, which decay with a half-life because the
    policy changes. A task's weight is its environment's share times the expected p^2t (1 - p)^(2 -
    2t), which is largest at the target t and equals p(1 - p) for t = 1/2. A fraction of the groups
    (`floor`) ignores this factor, so that every task is played eventually.
    """

    about = "mostly tasks whose solve rate is near a target"

    @dataclass(slots=True, kw_only=True)
    class Config(SamplerConfig):
        """The preferred solve rate, and how long episodes count."""

        target: Annotated[float, Gt(0), Lt(1)] = 0.5
        """Solve rate of the tasks that are played most often."""
        floor: Annotated[float, Gt(0), Le(1)] = 0.1
        """Fraction of the groups whose tasks are drawn by environment weight alone, regardless of
        solve rates."""
        half_life: PositiveFloat = 20.0
        """Number of training steps after which an episode counts only half in a task's solve
        rate."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(self.tasks) < 2:
            raise ConfigError(
                f"sampling.name={self.config.name}: there is nothing to choose from, as each group "
                "gets a new seed of the same environment. Set sampling.pool to the number of seeds "
                "to train on, list levels in mixture, or use a data set"
            )
        self._solved, self._failed = np.zeros(len(self.tasks)), np.zeros(len(self.tasks))
        self._observed = np.zeros(len(self.tasks), np.int64)
        """Last observed step of each arm, up to which its counts have decayed."""

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """See TaskSampler."""
        return self.tasks.draw(self.probabilities(step), step, count, attempt)

    def probabilities(self, step: int) -> NDArray[np.float64]:
        """Return float64[arms]: probabilities that are at least `floor` times the arm's share."""
        solved, failed = self._counts(step)
        # Tasks that were never played, most of a large data set, get the prior's value.
        signal = np.full(len(self.tasks), _signal(1.0, 1.0, self.config.target))
        seen = np.flatnonzero(solved + failed)
        signal[seen] = _signal(1 + solved[seen], 1 + failed[seen], self.config.target)
        weights = self.tasks.weights * signal
        floor = self.config.floor
        mixed: NDArray[np.float64] = (
            floor * self.tasks.weights + (1 - floor) * weights / weights.sum()
        )
        return mixed

    def _counts(self, step: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the solved and failed episodes of each arm, decayed to a step."""
        decay = 0.5 ** (np.maximum(0, step - self._observed) / self.config.half_life)
        return self._solved * decay, self._failed * decay

    def observe(self, step: int, played: Sequence[PlayedTask]) -> None:
        """See TaskSampler."""
        self._solved, self._failed = self._counts(step)
        self._observed[:] = step
        for one in played:
            if (arm := self.tasks.arm(one.task)) is not None:
                successes, valid = one.successes(self.config.success_at)
                self._solved[arm] += len(successes)
                self._failed[arm] += valid - len(successes)
        forgotten = self._solved + self._failed < _FORGOTTEN
        self._solved[forgotten] = self._failed[forgotten] = 0.0

    def metrics(self) -> Mapping[str, float]:
        """See TaskSampler."""
        total = self._solved + self._failed
        seen = np.flatnonzero(total)
        rates = self._solved[seen] / total[seen]
        # 1 / sum(p^2) is the number of equally likely tasks with the same diversity.
        probabilities = self.probabilities(int(self._observed.max()))
        return {
            "sampling/tasks_seen": float(len(seen)),
            "sampling/solve_rate": float(rates.mean()) if len(seen) else 0.0,
            "sampling/effective_tasks": float(1 / (probabilities**2).sum()),
        }

    def state(self) -> dict[str, Any]:
        """Return the last observed step and all nonzero counts, by task."""
        seen = np.flatnonzero(self._solved + self._failed).tolist()
        counts = {
            self.tasks.name(arm): [float(self._solved[arm]), float(self._failed[arm])]
            for arm in seen
        }
        return {"step": int(self._observed.max()), "counts": counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See TaskSampler; tasks that the job no longer has are dropped."""
        self._solved[:] = self._failed[:] = 0.0
        self._observed[:] = int(state.get("step", 0))
        for name, (solved, failed) in state.get("counts", {}).items():
            if (arm := self.tasks.arm_named(name)) is not None:
                self._solved[arm], self._failed[arm] = solved, failed


def _signal(alpha: Any, beta: Any, target: float) -> Any:
    """Return E[p^2t (1 - p)^(2 - 2t)] for p ~ Beta(alpha, beta), divided by the value at p = t."""
    a, b = 2 * target, 2 - 2 * target
    log_mean = (
        _log_gamma(alpha + a) + _log_gamma(beta + b) - _log_gamma(alpha + beta + 2)
        - _log_gamma(alpha) - _log_gamma(beta) + _log_gamma(alpha + beta)
    )  # fmt: skip
    largest = a * math.log(target) + b * math.log(1 - target)
    return np.exp(np.asarray(log_mean - largest, dtype=np.float64))
