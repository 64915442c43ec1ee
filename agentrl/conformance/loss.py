"""Checks of a policy loss, a class of `algorithm.loss.name`."""

import numpy as np

from agentrl import config as configuration
from agentrl.algorithms.core.policy_loss import PolicyLoss, load_loss
from agentrl.config import Config, algorithm_defaults
from agentrl.conformance.checking import reference
from agentrl.conformance.support import loss_invariants
from agentrl.conformance.support.loss_invariants import sample_tokens


def check_description(target: type[PolicyLoss]) -> None:
    """It says what it does, and which paper it is from."""
    for name in ("about", "source"):
        text = getattr(target, name, None)
        assert isinstance(text, str), f"{target.__name__}.{name} must be a text"
        assert text, f"{target.__name__}.{name} is empty"


def check_settings(target: type[PolicyLoss]) -> None:
    """Its settings have valid defaults, and survive being saved."""
    config = _config(target)
    config.validate()
    saved = configuration.from_dict(config.to_dict()).algorithm.loss
    assert saved == config.algorithm.loss, (
        f"saved and read again, {config.algorithm.loss} becomes {saved}"
    )


def check_form(target: type[PolicyLoss]) -> None:
    """Loss and gradient are finite, one for each token, at small and usual changes."""
    loss = _made(target)
    for spread in (0.0, 0.5):
        for seed in range(10):
            loss_invariants.form_invariant(loss, sample_tokens(seed, spread))


def check_far_tokens(target: type[PolicyLoss]) -> None:
    """Loss and gradient are finite where probabilities changed a lot: bound the log-ratio."""
    loss = _made(target)
    for seed in range(10):
        loss_invariants.form_invariant(loss, sample_tokens(seed, 1e4))


def check_splits(target: type[PolicyLoss]) -> None:
    """Splitting a batch between replies changes neither loss nor gradient."""
    loss = _made(target)
    for seed in range(10):
        loss_invariants.split_invariant(loss, sample_tokens(seed))


def check_order(target: type[PolicyLoss]) -> None:
    """Permuting tokens permutes their losses."""
    loss = _made(target)
    for seed in range(10):
        tokens = sample_tokens(seed)
        order = np.random.default_rng(seed).permutation(len(tokens.turn)).tolist()
        loss_invariants.order_invariant(loss, tokens, order)


def check_without_advantage(target: type[PolicyLoss]) -> None:
    """Tokens with advantage 0 have no gradient, unless the loss takes all tokens."""
    loss = _made(target)
    if loss.all_tokens:
        return
    for seed in range(10):
        loss_invariants.idle_invariant(loss, sample_tokens(seed))


def _config(target: type[PolicyLoss]) -> Config:
    return Config(algorithm=algorithm_defaults("grpo", reference(target)))


def _made(target: type[PolicyLoss]) -> PolicyLoss:
    return load_loss(_config(target).algorithm.loss)
