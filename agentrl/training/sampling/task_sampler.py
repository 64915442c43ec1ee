"""The base class of samplers, which choose among the tasks of a job."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config import RolloutConfig, SamplerConfig
from agentrl.errors import ConfigError, LearnerError, boundary
from agentrl.extension_points import SAMPLER
from agentrl.runs.episode_summary import is_success
from agentrl.training.sampling.task_pool import GroupTask, TaskPool, TaskSet
from agentrl.types import ScoredEpisode


@dataclass(slots=True, kw_only=True, frozen=True)
class PlayedTask:
    """A task and the group of episodes that the current policy played on it."""

    task: GroupTask
    episodes: Sequence[ScoredEpisode]

    def successes(self, success_at: float | None) -> tuple[list[ScoredEpisode], int]:
        """Return the members that solved the task, and the number of valid members.

        Raises:
            ConfigError: the environment does not report success, and `success_at` is not set.
        """
        valid = [scored for scored in self.episodes if not scored.episode.outcome.void]
        return [one for one in valid if _is_solved(one, success_at)], len(valid)


def _is_solved(scored: ScoredEpisode, success_at: float | None) -> bool:
    if success_at is not None:
        return scored.reward >= success_at
    episode = scored.episode
    solved = is_success(episode.turns[-1].info.get("metrics", {})) if episode.turns else False
    if solved is None:
        raise ConfigError(
            f"sampling.success_at=null: {episode.env_id} reports no metric `success` or "
            "`accuracy`; set it to the lowest return that counts as solved"
        )
    return solved


class TaskSampler(ABC):
    """Base class of samplers, which choose the task of each group in a training step.

    Everything that `choose` depends on, except its arguments and `tasks`, must be in `state`, so
    that a resumed job chooses the same tasks. Draw tasks with `TaskPool.draw`, or with a generator
    seeded by the step.

    Args:
        config: the settings of this sampler.
        tasks: the tasks of the job.
        folder: folder for this sampler's files, in the run's folder. It may not exist yet; write
            nothing before `observe` is called.
    """

    about: ClassVar[str]
    """One-line description of the sampler."""
    Config: ClassVar[type[SamplerConfig]] = SamplerConfig
    """Dataclass of the sampler's settings, all with defaults; extends `SamplerConfig`."""
    repeats: ClassVar[bool] = True
    """True if the sampler returns to tasks. If so, data set rows are counted, and the members of a
    group must share a seed."""
    replays: ClassVar[bool] = False
    """True if `replay` may return episodes."""

    def __init__(self, config: Any, tasks: TaskPool, folder: Path) -> None:
        self.config, self.tasks, self.folder = config, tasks, folder

    @abstractmethod
    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """Choose the tasks of a training step's groups.

        Args:
            step: the training step, from 1.
            count: number of groups.
            attempt: number of times that groups of this step have been replaced for lack of a
                learning signal (`algorithm.sampling`).
        """

    def observe(self, step: int, played: Sequence[PlayedTask]) -> None:
        """Update the sampler with the groups that a step played, just before they are trained on.

        With `train.mode=async`, the tasks of the next step may already have been chosen.

        Args:
            step: the training step; each step is observed once, in order.
            played: all groups of the step, including replaced groups.
        """

    def replay(self, step: int, played: PlayedTask) -> Sequence[ScoredEpisode]:
        """Return earlier episodes of the same task to add to a group; see `replays`."""
        return ()

    def metrics(self) -> Mapping[str, float]:
        """Return metrics to log with each step, by names such as `sampling/tasks_seen`."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; a new job has an empty state."""


def load_sampler(
    config: SamplerConfig,
    sets: Sequence[TaskSet],
    rollout: RolloutConfig,
    *,
    run_seed: int,
    folder: Path,
) -> TaskSampler:
    """Create the sampler named in a configuration.

    Raises:
        ConfigError: there is no such sampler, or it does not support these tasks.
    """
    cls: type[TaskSampler] = SAMPLER.resolve(config.name)
    if rollout.seed_per != "group" and (cls.repeats or config.pool is not None):
        raise ConfigError(
            f"sampling.name={config.name}: repeats tasks, so the episodes of a group must share a "
            "seed; set rollout.seed_per=group"
        )
    with boundary(ConfigError, f"sampling.name={config.name}: the constructor fails"):
        return cls(config, TaskPool(sets, run_seed, rollout), folder)


def chosen_tasks(sampler: TaskSampler, step: int, count: int, attempt: int) -> list[GroupTask]:
    """Ask a sampler for tasks, and check the result.

    Raises:
        LearnerError: the sampler raised an error, or did not return `count` tasks of the job.
    """
    what = f"sampling.name={sampler.config.name}: choose() "
    with boundary(LearnerError, f"{what}fails"):
        tasks = list(sampler.choose(step, count, attempt))
    # Check the tasks of a user's sampler here, as a wrong one would fail only in an environment.
    known = {one.env for one in sampler.tasks.sets}
    if len(tasks) != count:
        raise LearnerError(f"{what}returned {len(tasks)} tasks for {count} groups")
    for task in tasks:
        if not isinstance(task, GroupTask) or task.env not in known:
            raise LearnerError(f"{what}returned {task!r:.200}, which is not a task of the job")
    return tasks
