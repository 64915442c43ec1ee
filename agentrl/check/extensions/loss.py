"""Checks of a policy loss, a class of `algorithm.loss.name`; settings are its own."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.algorithms.core.policy_loss import PolicyLoss
from agentrl.check.extension_catalog import check_texts, reference
from agentrl.check.support import loss_invariants
from agentrl.config import LossConfig, algorithm_config


def config_of(target: type[PolicyLoss], settings: Mapping[str, Any]) -> LossConfig:
    """Return the section `algorithm.loss` with these settings.

    Raises:
        ConfigError: a setting does not exist, or a value (maybe a default) is invalid.
    """
    return algorithm_config("grpo", loss={**settings, "name": reference(target)}).loss


def check_description(target: type[PolicyLoss]) -> None:
    """The loss's docstring says what it does and which paper it comes from."""
    check_texts(target)


def check_settings(target: type[PolicyLoss], config: LossConfig) -> None:
    """The loss's settings survive a save and load."""
    saved = algorithm_config("grpo", loss=asdict(config)).loss
    assert saved == config, f"after a save and load, {config} became {saved}"


def check_form(target: type[PolicyLoss], config: LossConfig) -> None:
    """Each token has a finite loss and gradient when probabilities change as usual or less."""
    loss_invariants.form_invariant(target(config), 0.0, 0.5)


def check_far_tokens(target: type[PolicyLoss], config: LossConfig) -> None:
    """Loss and gradient stay finite where probabilities changed a lot: bound the log-ratio."""
    loss_invariants.form_invariant(target(config), 1e4)


def check_splits(target: type[PolicyLoss], config: LossConfig) -> None:
    """Splitting a batch between replies changes neither loss nor gradient."""
    loss_invariants.split_invariant(target(config))


def check_order(target: type[PolicyLoss], config: LossConfig) -> None:
    """Permuting tokens permutes their losses."""
    loss_invariants.order_invariant(target(config))


def check_without_advantage(target: type[PolicyLoss], config: LossConfig) -> None:
    """Tokens with advantage 0 have no gradient, unless the loss takes all tokens."""
    loss = target(config)
    if not loss.all_tokens:
        loss_invariants.idle_invariant(loss)
