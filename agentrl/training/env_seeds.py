"""Environment seeds of each stage, computed only from the run's seed and a count.

Held-out seeds are below `FIRST_LEARNED_SEED`. Above it, each run seed has two ranges of its own:
one for demonstrations, one for training. No seed is ever both evaluated and trained on.
"""

from collections.abc import Sequence

from agentrl.config import EvalConfig, RolloutConfig
from agentrl.data.seed_to_row import FIRST_LEARNED_SEED, SEED_RANGE
from agentrl.errors import ConfigError


def evaluation_seeds(settings: EvalConfig, episodes: int) -> list[int]:
    """Return the seeds of the held-out episodes."""
    return list(range(settings.first_seed, settings.first_seed + episodes))


def demonstration_seeds(run_seed: int, episodes: int) -> list[int]:
    """Return the seeds of the scripted player's demonstrations."""
    first = FIRST_LEARNED_SEED + 2 * run_seed * SEED_RANGE
    return list(range(first, first + episodes))


def training_seeds(run_seed: int, rollout: RolloutConfig, group: int) -> int | Sequence[int]:
    """Return the seed of a group, or one seed per member (`rollout.seed_per`).

    Args:
        run_seed: seed of the whole run.
        rollout: settings with the number of members.
        group: number of the group among all groups of the run, from 0.
    """
    first, size = first_training_seed(run_seed), rollout.group_size
    if rollout.seed_per == "group":
        return first + group
    return range(first + group * size, first + (group + 1) * size)


def first_training_seed(run_seed: int) -> int:
    """Return the seed of a run's first group; a multiple of the range's size, as `row_of` needs."""
    return FIRST_LEARNED_SEED + (2 * run_seed + 1) * SEED_RANGE


def check_evaluation_seeds(settings: EvalConfig) -> None:
    """Check that held-out seeds do not overlap with any run's seeds.

    Raises:
        ConfigError: the seeds overlap.
    """
    most = max(settings.episodes, settings.episodes_during)
    if settings.first_seed < 0 or settings.first_seed + most > FIRST_LEARNED_SEED:
        raise ConfigError(
            f"eval.first_seed={settings.first_seed}: must lie in [0, {FIRST_LEARNED_SEED - most}]"
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
        run_seed: seed of the whole run.
        rollout: settings with the number of groups and members.
        attempts: maximum number of times a step's groups are played; see `Algorithm.attempts`.
        steps: number of training steps.
        demonstrations: number of demonstrations.

    Raises:
        ConfigError: the range has too few seeds.
    """
    if not 0 <= run_seed < 1000:
        raise ConfigError(f"seed={run_seed}: must lie in [0, 999]")
    # This is an upper bound, because replaced groups also use new seeds.
    size = 1 if rollout.seed_per == "group" else rollout.group_size
    if max(demonstrations, steps * attempts * rollout.groups * size) > SEED_RANGE:
        raise ConfigError(
            f"the job needs more than {SEED_RANGE} seeds of one kind; lower train.steps or "
            "rollout.groups"
        )
