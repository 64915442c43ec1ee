"""Checks of an algorithm, a class of `algorithm.name`; settings belong to its section."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from agentrl import config as configuration
from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.check.extension_catalog import check_texts, reference
from agentrl.check.support import advantage_invariants, loss_invariants
from agentrl.check.support.sample_steps import Groups, sample_steps
from agentrl.config import AlgorithmConfig, algorithm_config


def config_of(target: type[Algorithm], settings: Mapping[str, Any]) -> AlgorithmConfig:
    """Return the section `algorithm` with these settings.

    Raises:
        ConfigError: a setting does not exist, or a value (maybe a default) is invalid.
    """
    config = algorithm_config(reference(target), **settings)
    config.validate_for_training()
    return config


def check_description(target: type[Algorithm]) -> None:
    """The algorithm's docstring says what it does and which paper it comes from."""
    check_texts(target)


def check_settings(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """The algorithm's settings survive a save and load."""
    saved = configuration.from_dict({"algorithm": asdict(config)}).algorithm
    assert saved == config, f"after a save and load, {asdict(config)} became {asdict(saved)}"


def check_requirements(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """The job can provide everything the algorithm requires."""
    algorithm = target(config)
    assert isinstance(algorithm.requires, Requires), (
        f"requires must be Requires(...), not {type(algorithm.requires).__name__}"
    )
    assert algorithm.compares in (None, "episodes", "turns", "states"), (
        f"compares must be None, 'episodes', 'turns' or 'states', not {algorithm.compares!r}"
    )


def check_form(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Advantages are finite, one for each sampled token, and 0 elsewhere."""
    for algorithm, groups in _cases(target(config)):
        advantage_invariants.form_invariant(algorithm, groups)


def check_layout(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """A token's advantage does not depend on how episodes are laid out."""
    for algorithm, groups in _cases(target(config)):
        advantage_invariants.layout_invariant(algorithm, groups)


def check_mask(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Tokens that were not sampled have no influence."""
    for algorithm, groups in _cases(target(config)):
        advantage_invariants.mask_invariant(algorithm, groups, 77.0)


def check_order(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Permuting episodes permutes advantages."""
    rng = np.random.default_rng(0)
    for algorithm, groups in _cases(target(config)):
        orders = [rng.permutation(len(group)).tolist() for group in groups]
        advantage_invariants.order_invariant(algorithm, groups, orders)


def check_void_episodes(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Void episodes (ended by a fault) do not influence the others."""
    for algorithm, groups in _cases(target(config)):
        advantage_invariants.void_invariant(algorithm, groups)


def check_shift(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """If siblings are compared, adding a constant to all their rewards changes nothing."""
    if target.compares is None:
        return
    # A later reward is discounted differently for turns at different distances from it.
    discount = 0.5 if target.compares == "episodes" else 1.0
    for algorithm, groups in _cases(target(replace(config, discount=discount))):
        advantage_invariants.shift_invariant(algorithm, groups, 3.0)


def check_resampling(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Resampled episodes, if any, are valid, and equal for equal seeds."""
    for seed, (algorithm, groups) in enumerate(_cases(target(config))):
        advantage_invariants.resample_invariant(algorithm, groups, seed)


def check_hooks(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Shaping keeps a group's episodes and turns, and each group is kept or replaced."""
    for algorithm, groups in _cases(target(config)):
        for group in groups:
            shaped = algorithm.shape_rewards(group, 8)
            assert [len(one.rewards) for one in shaped] == [len(one.rewards) for one in group], (
                "shape_rewards() must return the same episodes, with a reward for each turn"
            )
            kept = algorithm.keep_group(group)
            assert isinstance(kept, bool), f"keep_group() must return True or False, not {kept!r}"


def check_loss_form(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Loss and gradient are finite, even for tokens whose probability changed a lot."""
    loss_invariants.form_invariant(target(config).loss, 0.0, 0.5, 1e4)


def check_loss_splits(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Splitting a batch or reordering its tokens changes neither loss nor gradient."""
    loss_invariants.split_invariant(target(config).loss)
    loss_invariants.order_invariant(target(config).loss)


def check_loss_without_advantage(target: type[Algorithm], config: AlgorithmConfig) -> None:
    """Tokens with advantage 0 have no gradient, unless the algorithm requires all tokens."""
    algorithm = target(config)
    if not algorithm.requirements().all_tokens:
        loss_invariants.idle_invariant(algorithm.loss)


def _cases(algorithm: Algorithm) -> Iterator[tuple[Algorithm, Groups]]:
    for groups in sample_steps():
        yield algorithm, groups
