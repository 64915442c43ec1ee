"""What types alone do not say of a setting."""

import dataclasses
from typing import Any

from agentrl.config.tree import Config
from agentrl.errors import ConfigError


def parse_history(history: str) -> int | None:
    """How many screens the prompt shows: None for the whole conversation.

    Raises:
        ConfigError: neither `concat` nor `window:k`.
    """
    if history == "concat":
        return None
    kind, _, count = history.replace(" ", ":", 1).partition(":")
    if kind == "window" and count.strip().isdigit() and int(count) >= 1:
        return int(count)
    raise ConfigError(f"env.history={history!r}: must be 'concat' or 'window:k' with k >= 1")


def _positive(config: Config) -> list[tuple[str, float]]:
    rollout, train, evaluation = config.rollout, config.train, config.eval
    return [
        ("rollout.groups", rollout.groups),
        ("rollout.group_size", rollout.group_size),
        ("rollout.concurrency", rollout.concurrency),
        ("rollout.actors", rollout.actors),
        ("rollout.max_new_tokens", rollout.max_new_tokens),
        ("rollout.deadline_s", rollout.deadline_s),
        ("env.max_turns", config.env.max_turns),
        ("train.ranks", train.ranks),
        ("train.micro_batch_tokens", train.micro_batch_tokens),
        ("algorithm.epochs", config.algorithm.epochs),
        ("optim.lr", config.optim.lr),
        ("eval.episodes", evaluation.episodes),
        ("eval.episodes_during", evaluation.episodes_during),
        ("checkpoint.every", config.checkpoint.every),
        ("checkpoint.keep", config.checkpoint.keep),
        ("rollout.max_context", rollout.max_context),
        ("rollout.reward_deadline_s", rollout.reward_deadline_s),
        ("rollout.start_deadline_s", rollout.start_deadline_s),
        ("train.deadline_s", train.deadline_s),
        *((f"devices.deadlines.{k}", v) for k, v in _plain(config.devices.deadlines)),
        *((f"warm_start.{k}", v) for k, v in _plain(config.warm_start, "episodes steps batch lr")),
    ]


def _plain(settings: Any, names: str = "") -> list[tuple[str, float]]:
    """Name and value of some numbers; none of settings that are not there."""
    if settings is None:
        return []
    chosen = names.split() or [field.name for field in dataclasses.fields(settings)]
    return [(name, getattr(settings, name)) for name in chosen]


def _not_negative(config: Config) -> list[tuple[str, float]]:
    return [
        ("rollout.max_refills", config.rollout.max_refills),
        ("train.steps", config.train.steps),
        ("eval.every", config.eval.every),
        ("algorithm.kl_coefficient", config.algorithm.kl_coefficient),
    ]


def _pairs(config: Config) -> list[tuple[str, list[Any] | None, str]]:
    warm = config.warm_start
    return [
        ("model.image_size", config.model.image_size, "[width, height] in pixels"),
        ("devices.size", config.devices.size, "[width, height] in pixels"),
        ("optim.betas", config.optim.betas, "two decays"),
        ("warm_start.betas", warm.betas if warm else None, "two decays"),
    ]


def validate(config: Config) -> None:
    """Check what types alone do not.

    Raises:
        ConfigError: the first value that makes no sense.
    """
    for key, value in _positive(config):
        if not value > 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    if config.algorithm.minibatch is not None and config.algorithm.minibatch < 1:
        raise ConfigError(f"algorithm.minibatch={config.algorithm.minibatch}: must be above 0")
    if config.rollout.temperature <= 0:
        raise ConfigError(
            f"rollout.temperature={config.rollout.temperature}: must be above 0; "
            "greedy answers teach nothing (evaluation plays greedily by itself)"
        )
    for key, value in _not_negative(config):
        if value < 0:
            raise ConfigError(f"{key}={value}: must not be below 0")
    for key, pair, meaning in _pairs(config):
        if pair is not None and (len(pair) != 2 or min(pair) <= 0):
            raise ConfigError(f"{key}={pair}: must be {meaning}, both above 0")
    delay = config.devices.effect_delay_ms
    if len(delay) != 2 or not 0 <= delay[0] <= delay[1]:
        raise ConfigError(f"devices.effect_delay_ms={delay}: must be [least, most], both >= 0")
    parse_history(config.env.history)
