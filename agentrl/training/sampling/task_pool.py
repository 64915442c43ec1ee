"""The tasks of a job, as arms that a sampler chooses from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentrl.config import RolloutConfig, SamplerConfig
from agentrl.errors import ConfigError
from agentrl.extension_points import SAMPLER
from agentrl.rollout.rollout_plan import PlayTask
from agentrl.training.env_seeds import first_training_seed, training_seeds

MAX_TASKS = 1_000_000
"""Maximum number of tasks that a sampler can distinguish."""
Seeds = int | Sequence[int]
"""Seed of a group, or one seed per member (`rollout.seed_per=episode`)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class GroupTask:
    """The task of a group: an environment, and the seed of a level or row."""

    env: str
    """Name of the environment in `mixture`; empty without a mixture."""
    seed: Seeds


@dataclass(slots=True, kw_only=True, frozen=True)
class TaskSet:
    """The tasks of one environment."""

    env: str
    """Name of the environment, see `GroupTask.env`."""
    weight: float
    """Fraction of all groups that play the environment; the fractions of a job sum to 1."""
    count: int | None
    """Number of tasks, selected by consecutive seeds. None if tasks are endless: each group gets a
    new seed, and only the environment repeats."""


class TaskPool:
    """The tasks of a job as arms; an arm is a repeating task or an endless environment.

    The pool counts how many of each environment's tasks it has handed out, so that no task is
    skipped even if groups are replaced or replayed. Checkpoints include these counts.

    Args:
        sets: the tasks of each environment.
        run_seed: seed of the whole run.
        rollout: determines whether the members of a group share a seed.

    Raises:
        ConfigError: there are more arms than a sampler can distinguish.
    """

    def __init__(self, sets: Sequence[TaskSet], run_seed: int, rollout: RolloutConfig) -> None:
        self.sets = tuple(sets)
        self._run_seed, self._rollout = run_seed, rollout
        self.taken = dict.fromkeys((one.env for one in sets), 0)
        """Number of groups that have received the next task of each environment."""
        self._taken_before: dict[int, dict[str, int]] = {}
        """Copies of `taken` from before each step that may have to be chosen again."""
        self._first_seed = first_training_seed(run_seed)
        sizes = [one.count or 1 for one in sets]
        if sum(sizes) > MAX_TASKS:
            raise ConfigError(
                f"a sampler can distinguish at most {MAX_TASKS} tasks, but there are {sum(sizes)}; "
                "set sampling.pool, or sampling.name=uniform"
            )
        self._starts = np.cumsum([0, *sizes])
        self._set_of = np.repeat(np.arange(len(sizes)), sizes)
        self.weights: NDArray[np.float64] = np.repeat(
            [one.weight / size for one, size in zip(sets, sizes, strict=True)], sizes
        )
        """float64[arms] that sum to 1: each environment's share, divided equally among its arms."""

    def __len__(self) -> int:
        """Return the number of arms."""
        return len(self.weights)

    def seed_of(self, step: int, attempt: int) -> list[int]:
        """Return a seed for a step's random draws, different from all other steps and runs."""
        return [self._run_seed, step, attempt]

    def draw(
        self, probabilities: NDArray[np.float64], step: int, count: int, attempt: int = 0
    ) -> list[GroupTask]:
        """Draw tasks; an arm with probability p is drawn floor(p * count) times, or one more.

        The expected number is p * count (systematic sampling), so rare tasks are drawn as often as
        they should be, and common tasks are not repeated by chance. The same arguments draw the
        same arms; an endless environment gives a new seed each time.

        Args:
            probabilities: [arms], nonnegative, not all 0.
            step: the training step, from 1.
            count: number of tasks, at most the step's number of groups.
            attempt: see `TaskSampler.choose`.
        """
        self._begin(step)
        rng = np.random.default_rng(self.seed_of(step, attempt))
        return [self._task(arm) for arm in _draw(rng, probabilities, self._set_of, count)]

    def next_in_order(self, step: int, count: int, attempt: int = 0) -> list[GroupTask]:
        """Return the next tasks of environments that are drawn by weight.

        An endless environment gives a new seed each time. Other environments give each of their
        tasks once per epoch, in a new order each epoch.

        Args:
            step: see `draw`.
            count: see `draw`.
            attempt: see `draw`.
        """
        self._begin(step)
        rng = np.random.default_rng(self.seed_of(step, attempt))
        weights = np.array([one.weight for one in self.sets])
        return [self._next(n) for n in _draw(rng, weights, np.arange(len(weights)), count)]

    def _task(self, arm: int) -> GroupTask:
        index = int(self._set_of[arm])
        own = self.sets[index]
        if own.count is None:
            return self._next(index)
        return GroupTask(env=own.env, seed=self._first_seed + arm - int(self._starts[index]))

    def _next(self, index: int) -> GroupTask:
        own = self.sets[index]
        number = self.taken[own.env]
        self.taken[own.env] += 1
        if own.count is None:
            seeds = training_seeds(self._run_seed, self._rollout, number)
            return GroupTask(env=own.env, seed=seeds)
        epoch, position = divmod(number, own.count)
        order = _order(own.count, self._run_seed, epoch)
        return GroupTask(env=own.env, seed=self._first_seed + int(order[position]))

    def _begin(self, step: int) -> None:
        self._taken_before.setdefault(step, dict(self.taken))

    def state(self, step: int) -> dict[str, int]:
        """Return the state for a step's checkpoint, without tasks chosen for later steps.

        After this call, the state of an earlier step is no longer available.
        """
        # With train.mode=async, tasks are chosen in advance; a resumed job chooses them again.
        later = [one for one in self._taken_before if one > step]
        taken = self._taken_before[min(later)] if later else self.taken
        self._taken_before = {one: self._taken_before[one] for one in later}
        return dict(taken)

    def restore(self, taken: Mapping[str, int], otherwise: int = 0) -> None:
        """Continue from a saved state; a new job has an empty state.

        Args:
            taken: the state.
            otherwise: count for environments that are not in the state.
        """
        self.taken = {one.env: taken.get(one.env, otherwise) for one in self.sets}
        self._taken_before.clear()

    def arm(self, task: GroupTask) -> int | None:
        """Return the arm of a task; None if the job does not have it (anymore)."""
        index = next((i for i, one in enumerate(self.sets) if one.env == task.env), None)
        if index is None:
            return None
        own = self.sets[index]
        if own.count is None:
            return int(self._starts[index])
        offset = task.seed - self._first_seed if isinstance(task.seed, int) else -1
        return int(self._starts[index]) + offset if 0 <= offset < own.count else None

    def name(self, arm: int) -> str:
        """Return the string that identifies an arm in a checkpoint: `ENV`, or `ENV:NUMBER`."""
        own = self.sets[int(self._set_of[arm])]
        number = arm - int(self._starts[self._set_of[arm]])
        return own.env if own.count is None else f"{own.env}:{number}"

    def arm_named(self, name: str) -> int | None:
        """Return the arm with this `name`; None if the job does not have it (anymore)."""
        env, colon, number = name.rpartition(":")
        if not colon:
            return self.arm(GroupTask(env=name, seed=self._first_seed))
        return self.arm(GroupTask(env=env, seed=self._first_seed + int(number)))


def _draw(
    rng: np.random.Generator,
    probabilities: NDArray[np.float64],
    kinds: NDArray[np.int64],
    count: int,
) -> list[int]:
    """Draw indices by systematic sampling, ordered by kind; see `TaskPool.draw`."""
    # Shuffle within each kind, so that an index has different neighbors in each step.
    order = np.lexsort((rng.random(len(kinds)), kinds))
    edges = np.cumsum(probabilities[order])
    ticks = (rng.random() + np.arange(count)) / max(1, count) * edges[-1]
    found = np.searchsorted(edges, ticks, side="right")
    # Rounding may move the last tick past the last index.
    found = np.minimum(found, np.searchsorted(edges, edges[-1]))
    chosen: list[int] = order[found].tolist()
    return chosen


@lru_cache(maxsize=4)
def _order(count: int, run_seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([run_seed, epoch]).permutation(count)


def task_sets(
    config: SamplerConfig, tasks: Mapping[str, PlayTask], weights: Mapping[str, float]
) -> list[TaskSet]:
    """Return the tasks of each environment; counted only if the job's sampler returns to tasks.

    Raises:
        ConfigError: an environment does not accept its arguments, or there is no such sampler.
    """
    pool = config.pool
    is_counted = SAMPLER.resolve(config.name).repeats or pool is not None
    sets = []
    for name, task in tasks.items():
        known = task.train.check_arguments() if is_counted else None
        count = min((n for n in (pool, known) if n is not None), default=None)
        sets.append(TaskSet(env=name, weight=weights[name], count=count))
    return sets
