"""Which seeds are played when: a pure function of the run's seed and the step.

Held-out seeds lie below `_FIRST`; above it every run seed has a range of its own, the first half
for demonstrations and the second for training. So nothing that is evaluated is ever trained on.
"""

from collections.abc import Sequence

from agentrl.algorithms.episode_selection import filters
from agentrl.config import Config
from agentrl.errors import ConfigError

_FIRST = 100_000_000
_RANGE = 10_000_000
_HALF = _RANGE // 2


def evaluation(config: Config, episodes: int) -> list[int]:
    """Held-out seeds."""
    return list(range(config.eval.seeds, config.eval.seeds + episodes))


def demonstration(config: Config, episodes: int) -> list[int]:
    """Seeds of the scripted player's games."""
    first = _FIRST + config.seed * _RANGE
    return list(range(first, first + episodes))


def training(config: Config, step: int, attempt: int = 0) -> Sequence[int | Sequence[int]]:
    """One for each group of this step (from 1), or as many as it has members.

    Args:
        config: the whole job's.
        step: from 1.
        attempt: how often groups of this step were played anew already.
    """
    count, attempts = _seeds_of_attempt(config), _attempts(config)
    begun = ((step - 1) * attempts + attempt) * count
    first = _FIRST + config.seed * _RANGE + _HALF + begun
    seeds = range(first, first + count)
    if config.rollout.seed_per == "group":
        return seeds
    size = config.rollout.group_size
    return [seeds[member : member + size] for member in range(0, count, size)]


def _seeds_of_attempt(config: Config) -> int:
    groups, size = config.rollout.groups, config.rollout.group_size
    return groups if config.rollout.seed_per == "group" else groups * size


def _attempts(config: Config) -> int:
    return 1 + (config.algorithm.filter_refills if filters(config) else 0)


def check_seeds(config: Config) -> None:
    """Make sure that the ranges cannot meet.

    Raises:
        ConfigError: they would.
    """
    most = max(config.eval.episodes, config.eval.episodes_during)
    if config.eval.seeds < 0 or config.eval.seeds + most > _FIRST:
        raise ConfigError(f"eval.seeds={config.eval.seeds}: must lie in [0, {_FIRST - most}]")
    if not 0 <= config.seed < 1000:
        raise ConfigError(f"seed={config.seed}: must lie in [0, 999]")
    demos = config.warm_start.episodes if config.warm_start else 0
    if max(demos, config.train.steps * _attempts(config) * _seeds_of_attempt(config)) > _HALF:
        raise ConfigError(
            f"more than {_HALF} seeds of one kind: lower train.steps or rollout.groups"
        )
