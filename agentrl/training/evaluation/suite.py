"""Evaluation suites: named lists of tasks, each reported separately."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from agentrl.config import Config, EnvConfig, EvalConfig, RewardConfig
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import SUITE
from agentrl.rollout.environments.resolved_env import resolve_env

_EPISODES = 20
"""Default number of episodes of a task without a limited number of questions."""


@dataclass(slots=True, kw_only=True, frozen=True)
class SuiteTask:
    """One task of a suite: an environment or data set, the number of episodes, and the metric."""

    name: str
    """Name of the row in the report, such as `two digits`."""
    env: str | None = None
    """Environment, as in `env.id`; None for levels of the job's own environment."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments as in `env.kwargs`; without `env`, they are added to the job's."""
    translator_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments as in `env.translator_kwargs`, added to the job's if it plays the same
    environment."""
    episodes: int | None = None
    """Number of different episodes: held-out seeds, or questions of a data set. None for all
    questions of a data set, or 20 seeds of any other environment."""
    samples: int = 1
    """Number of times that each episode is played, for pass@k."""
    first_seed: int | None = None
    """First of the consecutive held-out seeds; None for `eval.first_seed`."""
    max_turns: int | None = None
    """Limit as in `env.max_turns`; None uses the job's."""
    max_new_tokens: int | None = None
    """Limit as in `rollout.max_new_tokens`; None uses the job's."""
    temperature: float | None = None
    """Temperature as in `rollout.temperature`; 0 always takes the most probable token. None uses
    the job's temperature."""
    rewards: list[RewardConfig] | None = None
    """Reward functions as in `rewards`. None uses the environment's own reward if `env` is set,
    else the job's rewards."""
    metric: str | None = None
    """The metric to compare, such as `reward` or `reward/accuracy` (a component). An episode passes
    if its metric is at least 1. None uses the first available metric of `success`, `won` and
    `accuracy`, or else the reward."""
    category: str | None = None
    """Column of the data set, or key of the environment's first info, by which results are also
    reported; `a.b` is key b of the object in a."""

    def check(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: a number is out of range.
        """
        for name in ("episodes", "samples", "max_turns", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{self.name!r}: {name}={value} must be at least 1")
        if self.temperature is not None and self.temperature < 0:
            raise ConfigError(f"{self.name!r}: temperature={self.temperature} must be at least 0")

    def applied_to(self, config: Config, greedy: bool = False) -> Config:
        """Return the job's configuration for evaluating this task in the same way for all models.

        Keeps the job's history and, in the job's own environment, the other prompt settings.

        Args:
            config: the job.
            greedy: the model takes its most probable token, regardless of the temperature.

        Raises:
            ConfigError: the environment does not accept the arguments, or all samples would be
                equal.
        """
        if self.samples > 1 and (greedy or self.temperature == 0):
            raise ConfigError(
                f"samples={self.samples}: all greedy replies are the same; set samples=1, or a "
                "temperature above 0"
            )
        # With the job's `mixture` and `eval.kwargs`, models would play different tasks.
        rollout = config.rollout
        env = self.env_of(config.env, config.eval)
        return replace(
            config,
            env=env,
            rewards=self._rewards(config.rewards),
            mixture=[],
            rollout=replace(
                rollout,
                temperature=self.temperature or rollout.temperature,
                max_new_tokens=self.max_new_tokens or rollout.max_new_tokens,
            ),
            eval=self.seeds_of(config.eval, _num_episodes(env, self.episodes)),
        )

    def seeds_of(self, settings: EvalConfig, episodes: int) -> EvalConfig:
        """Return the section `eval` of a job with this task's seeds, without `kwargs` and rings."""
        first = settings.first_seed if self.first_seed is None else self.first_seed
        return replace(
            settings,
            episodes=episodes,
            first_seed=first,
            kwargs={},
            suite=None,
            rings=None,
        )

    def env_of(self, env: EnvConfig, evaluation: EvalConfig) -> EnvConfig:
        """Return the environment to play, given the job's environment and evaluation settings."""
        max_turns = self.max_turns or env.max_turns
        if self.env is None:
            inherited = {**env.kwargs, **evaluation.kwargs}
        elif self.env == env.id:
            # The job determines how the model is prompted, but not what it plays.
            inherited = {}
        else:
            return EnvConfig(
                id=self.env, kwargs=self.kwargs, translator_kwargs=self.translator_kwargs,
                history=env.history, max_turns=max_turns,
            )  # fmt: skip
        return replace(
            env,
            kwargs={**inherited, **self.kwargs},
            translator_kwargs={**env.translator_kwargs, **self.translator_kwargs},
            max_turns=max_turns,
            horizon=None,
            start=None,
        )

    def _rewards(self, of_job: list[RewardConfig]) -> list[RewardConfig]:
        if self.rewards is not None:
            return list(self.rewards)
        return of_job if self.env is None else []


def _num_episodes(env: EnvConfig, wanted: int | None) -> int:
    """Return the number of episodes, limited so that no question of a data set is repeated."""
    # A data set returns its number of questions; higher seeds would repeat questions.
    most = resolve_env(env).check_arguments()
    if most is None:
        return wanted or _EPISODES
    return min(wanted or most, most)


class EvaluationSuite(ABC):
    """A list of tasks that are evaluated together, with `eval.suite` or `--suite`."""

    folder: ClassVar[str | None] = None
    """Additional folder to search for files named by the tasks."""

    @abstractmethod
    def tasks(self) -> Sequence[SuiteTask]:
        """Return the tasks, which have unique names and are the same in every call."""


def tasks_of(name: str, suite: type[EvaluationSuite] | None = None) -> list[SuiteTask]:
    """Return the checked tasks of a suite.

    Args:
        name: name as in `eval.suite`.
        suite: the suite of that name, if already open.

    Raises:
        ConfigError: the suite does not exist or fails, or its tasks are invalid.
    """
    cls: type[EvaluationSuite] = SUITE.resolve(name) if suite is None else suite
    with boundary(ConfigError, f"eval.suite={name}: tasks() fails"):
        tasks = list(cls().tasks())
    if not tasks:
        raise ConfigError(f"eval.suite={name}: the suite has no tasks")
    names = [task.name for task in tasks]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise ConfigError(f"eval.suite={name}: two tasks are named {twice!r}")
    for task in tasks:
        try:
            task.check()
        except ConfigError as error:
            raise ConfigError(f"eval.suite={name}: {error}") from None
    return tasks
