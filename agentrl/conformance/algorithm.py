"""Checks of an algorithm, a class of `algorithm.name`."""

from collections.abc import Iterator
from dataclasses import asdict, fields

import numpy as np

from agentrl import config as configuration
from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.config import AlgorithmConfig, Config, algorithm_defaults
from agentrl.conformance.checking import reference
from agentrl.conformance.support import advantage_invariants, loss_invariants
from agentrl.conformance.support.loss_invariants import sample_tokens
from agentrl.conformance.support.sample_steps import Groups, sample_steps

_SPREADS = (0.0, 0.5, 1e4)
"""Of the log-ratios of tokens."""


def check_description(target: type[Algorithm]) -> None:
    """It says what it does, and which paper it is from."""
    for name in ("about", "source"):
        text = getattr(target, name, None)
        assert isinstance(text, str), f"{target.__name__}.{name} must be a text"
        assert text, f"{target.__name__}.{name} is empty"


def check_settings(target: type[Algorithm]) -> None:
    """Its settings have valid defaults, and survive being saved."""
    config = Config(algorithm=_defaults(target))
    config.validate()
    config.algorithm.validate_for_training()
    saved = configuration.from_dict(config.to_dict())
    assert saved.algorithm == config.algorithm, (
        f"saved and read again, {asdict(config.algorithm)} becomes {asdict(saved.algorithm)}"
    )


def check_requirements(target: type[Algorithm]) -> None:
    """What it requires can be provided."""
    algorithm = _made(target)
    assert isinstance(algorithm.requires, Requires), (
        f"requires is {type(algorithm.requires).__name__}, must be Requires(...)"
    )
    assert algorithm.compares in (None, "episodes", "turns", "states"), (
        f"compares is {algorithm.compares!r}, must be None, 'episodes', 'turns' or 'states'"
    )


def check_form(target: type[Algorithm]) -> None:
    """Advantages are finite, one for each sampled token, and 0 elsewhere."""
    for algorithm, groups in _cases(target):
        advantage_invariants.form_invariant(algorithm, groups)


def check_layout(target: type[Algorithm]) -> None:
    """The same tokens get the same advantages however episodes are laid out."""
    for algorithm, groups in _cases(target):
        advantage_invariants.layout_invariant(algorithm, groups)


def check_mask(target: type[Algorithm]) -> None:
    """Tokens that were not sampled have no influence."""
    for algorithm, groups in _cases(target):
        advantage_invariants.mask_invariant(algorithm, groups, 77.0)


def check_order(target: type[Algorithm]) -> None:
    """Permuting episodes permutes advantages."""
    rng = np.random.default_rng(0)
    for algorithm, groups in _cases(target):
        orders = [rng.permutation(len(group)).tolist() for group in groups]
        advantage_invariants.order_invariant(algorithm, groups, orders)


def check_void_episodes(target: type[Algorithm]) -> None:
    """Void episodes, which a fault ended, do not influence others."""
    for algorithm, groups in _cases(target):
        advantage_invariants.void_invariant(algorithm, groups)


def check_shift(target: type[Algorithm]) -> None:
    """If it compares siblings, a constant added to all of them changes nothing."""
    if target.compares is None:
        return
    # A later reward is discounted differently for turns at different distances from it.
    discount = 0.5 if target.compares == "episodes" else 1.0
    for algorithm, groups in _cases(target):
        algorithm.config.discount = discount
        advantage_invariants.shift_invariant(algorithm, groups, 3.0)


def check_resampling(target: type[Algorithm]) -> None:
    """If it draws episodes again, they are valid, and the same for the same seed."""
    for seed, (algorithm, groups) in enumerate(_cases(target)):
        advantage_invariants.resample_invariant(algorithm, groups, seed)


def check_hooks(target: type[Algorithm]) -> None:
    """Shaping keeps a group's episodes and turns, and each group is kept or replaced."""
    for algorithm, groups in _cases(target):
        for group in groups:
            shaped = algorithm.shape_rewards(group, 8)
            assert [len(one.rewards) for one in shaped] == [len(one.rewards) for one in group], (
                "shape_rewards() must return the same episodes, with a reward for each turn"
            )
            kept = algorithm.keep_group(group)
            assert isinstance(kept, bool), f"keep_group() returned {kept!r}, must be True or False"


def check_loss_form(target: type[Algorithm]) -> None:
    """Its loss and gradient are finite, also for tokens whose probability changed a lot."""
    algorithm = _made(target)
    for spread in _SPREADS:
        for seed in range(10):
            loss_invariants.form_invariant(algorithm.loss, sample_tokens(seed, spread))


def check_loss_splits(target: type[Algorithm]) -> None:
    """Splitting a batch changes neither loss nor gradient, nor does the order of its tokens."""
    algorithm = _made(target)
    for seed in range(10):
        tokens = sample_tokens(seed)
        loss_invariants.split_invariant(algorithm.loss, tokens)
        order = np.random.default_rng(seed).permutation(len(tokens.turn)).tolist()
        loss_invariants.order_invariant(algorithm.loss, tokens, order)


def check_loss_without_advantage(target: type[Algorithm]) -> None:
    """Tokens with advantage 0 have no gradient, unless it requires all tokens."""
    algorithm = _made(target)
    if algorithm.requirements().all_tokens:
        return
    for seed in range(10):
        loss_invariants.idle_invariant(algorithm.loss, sample_tokens(seed))


def _cases(target: type[Algorithm]) -> Iterator[tuple[Algorithm, Groups]]:
    algorithm = _made(target)
    for groups in sample_steps():
        yield algorithm, groups


def _made(target: type[Algorithm]) -> Algorithm:
    return target(_defaults(target))


def _defaults(target: type[Algorithm]) -> AlgorithmConfig:
    config = algorithm_defaults(reference(target))
    assert {field.name for field in fields(AlgorithmConfig)} <= {f.name for f in fields(config)}
    return config
