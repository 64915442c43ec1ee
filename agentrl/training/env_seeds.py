"""Environment seeds of each stage, as a pure function of the run's seed and the step.

Held-out seeds are below `_FIRST`. Above it each run seed has its own range: the first half for
demonstrations, the second for training. No seed is ever both evaluated and trained on.
"""

from collections.abc import Sequence

from agentrl.config import EvalConfig, RolloutConfig
from agentrl.errors import ConfigError

_FIRST = 100_000_000
_RANGE = 10_000_000
_HALF = _RANGE // 2


def evaluation_seeds(settings: EvalConfig, episodes: int) -> list[int]:
    """Seeds of the held-out episodes."""
    return list(range(settings.first_seed, settings.first_seed + episodes))


def demonstration_seeds(run_seed: int, episodes: int) -> list[int]:
    """Seeds of the scripted player's demonstrations."""
    first = _FIRST + run_seed * _RANGE
    return list(range(first, first + episodes))


def training_seeds(
    run_seed: int, rollout: RolloutConfig, attempts: int, step: int, attempt: int = 0
) -> Sequence[int | Sequence[int]]:
    """One seed per group of this step, or one per member (`rollout.seed_per`).

    Args:
        run_seed: of the whole run.
        rollout: the numbers of groups and of their members.
        attempts: how many times a step's groups are played at most; see `Algorithm.attempts`.
        step: from 1.
        attempt: how many times groups of this step have been replaced.
    """
    count = _seeds_of_attempt(rollout)
    first = first_training_seed(run_seed) + ((step - 1) * attempts + attempt) * count
    seeds = range(first, first + count)
    if rollout.seed_per == "group":
        return seeds
    size = rollout.group_size
    return [seeds[member : member + size] for member in range(0, count, size)]


def first_training_seed(run_seed: int) -> int:
    """The seed of a run's first group; a multiple of a million, as `row_of` counts rows from."""
    return _FIRST + run_seed * _RANGE + _HALF


def _seeds_of_attempt(rollout: RolloutConfig) -> int:
    groups, size = rollout.groups, rollout.group_size
    return groups if rollout.seed_per == "group" else groups * size


def check_evaluation_seeds(settings: EvalConfig) -> None:
    """Check that held-out seeds do not overlap with those of any run.

    Raises:
        ConfigError: they would.
    """
    most = max(settings.episodes, settings.episodes_during)
    if settings.first_seed < 0 or settings.first_seed + most > _FIRST:
        raise ConfigError(
            f"eval.first_seed={settings.first_seed}: must lie in [0, {_FIRST - most}]"
        )


def check_run_seeds(
    run_seed: int,
    rollout: RolloutConfig,
    attempts: int,
    *,
    steps: int,
    demonstrations: int,
) -> None:
    """Check that a run's demonstrations and training steps fit into its range of seeds.

    Args:
        run_seed: of the whole run.
        rollout: the numbers of groups and of their members.
        attempts: how many times a step's groups are played at most; see `Algorithm.attempts`.
        steps: number of training steps.
        demonstrations: number of demonstrations.

    Raises:
        ConfigError: they do not.
    """
    if not 0 <= run_seed < 1000:
        raise ConfigError(f"seed={run_seed}: must lie in [0, 999]")
    if max(demonstrations, steps * attempts * _seeds_of_attempt(rollout)) > _HALF:
        raise ConfigError(
            f"more than {_HALF} seeds of one kind are needed: lower train.steps or rollout.groups"
        )
