"""Evaluation suites: named lists of environments that one policy plays, reported one by one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.config import Config, EnvConfig
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import SUITE


@dataclass(slots=True, kw_only=True, frozen=True)
class SuiteEntry:
    """One environment of a suite, and how much of it is played."""

    name: str
    """Of the row in the report, such as `two digits`."""
    env_id: str | None = None
    """As `env.id`; None for the job's own environment."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """As `env.kwargs`; for the job's own environment, in addition to its own."""
    episodes: int = 20
    first_seed: int | None = None
    """The first of the consecutive held-out seeds; None for `eval.first_seed`."""
    max_turns: int | None = None
    """As `env.max_turns`; None for the job's."""

    def applied_to(self, config: Config) -> Config:
        """The job, with this entry as what it evaluates.

        An environment other than the job's keeps the job's history and is scored by its own
        reward: the job's reward functions expect another game.
        """
        env, rewards = config.env, config.rewards
        if self.env_id is None or self.env_id == env.id:
            held_out = {**env.kwargs, **config.eval.kwargs}
            env = replace(env, kwargs={**held_out, **self.kwargs})
        else:
            env = EnvConfig(
                id=self.env_id,
                kwargs=dict(self.kwargs),
                history=env.history,
                max_turns=env.max_turns,
            )
            rewards = []
        first_seed = config.eval.first_seed if self.first_seed is None else self.first_seed
        return replace(
            config,
            env=replace(env, max_turns=self.max_turns or env.max_turns),
            rewards=rewards,
            mixture=[],
            eval=replace(
                config.eval, episodes=self.episodes, first_seed=first_seed, kwargs={}, suite=None
            ),
        )


class EvaluationSuite(ABC):
    """A list of environments that is evaluated as a whole, by `eval.suite` or `--suite`."""

    @abstractmethod
    def entries(self) -> Sequence[SuiteEntry]:
        """The entries, each under a name of its own; the same at every call."""


def entries_of(name: str) -> list[SuiteEntry]:
    """The entries of a suite.

    Args:
        name: as `eval.suite`.

    Raises:
        ConfigError: there is no such suite, it fails, or its entries are invalid.
    """
    cls: type[EvaluationSuite] = SUITE.resolve(name)
    with boundary(ConfigError, f"eval.suite={name}: its entries fail"):
        entries = list(cls().entries())
    check_entries(name, entries)
    return entries


def check_entries(name: str, entries: Sequence[SuiteEntry]) -> None:
    """Check that a suite has entries, with different names and at least one episode each.

    Raises:
        ConfigError: it does not.
    """
    if not entries:
        raise ConfigError(f"eval.suite={name}: entries() is empty")
    names = [entry.name for entry in entries]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise ConfigError(f"eval.suite={name}: two entries are named {twice!r}")
    for entry in entries:
        if entry.episodes < 1:
            raise ConfigError(
                f"eval.suite={name}: {entry.name!r} has episodes={entry.episodes}; at least 1"
            )
