"""Make an environment with its wrappers."""

from typing import Any

import gymnasium

from agentrl import env, registry
from agentrl.config import EnvConfig, WrapperConfig
from agentrl.errors import ConfigError, describe_error
from agentrl.rollout.env_arguments import (
    env_kwargs,
)


def make_env(
    config: EnvConfig, render_mode: str | None = None, **place: str
) -> "gymnasium.Env[Any, Any]":
    """The environment with its wrappers.

    Gymnasium's passive checker is off: repeated for every lease of a phone, it would take longer
    than a turn. `agentrl envs check` runs it.

    Args:
        config: the environment.
        render_mode: used unless `env.kwargs` names one.
        **place: `device`, for an environment that is played on a phone.

    Raises:
        ConfigError: it does not exist, or its arguments are rejected.
    """
    kwargs: dict[str, Any] = {**env_kwargs(config), **place}
    if render_mode is not None:
        kwargs.setdefault("render_mode", render_mode)
    made = env.make(config.id, **kwargs, disable_env_checker=True)
    for wrapper in config.wrappers:
        made = _wrapped(made, wrapper)
    return made


def _wrapped(made: "gymnasium.Env[Any, Any]", config: WrapperConfig) -> "gymnasium.Env[Any, Any]":
    kind = registry.load(config.wrapper)
    try:
        wrapped: gymnasium.Env[Any, Any] = kind(made, **config.kwargs)
    except Exception as error:
        raise ConfigError(
            f"env.wrappers: {config.wrapper} failed with kwargs={config.kwargs}: "
            f"{describe_error(error)}"
        ) from error
    return wrapped
