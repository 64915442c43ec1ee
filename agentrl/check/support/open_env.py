"""Make and close an environment for a check."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium

from agentrl.config import EnvConfig
from agentrl.config.env_settings import EACH
from agentrl.rollout.environments.env_processes import EnvProcesses
from agentrl.rollout.environments.resolved_env import resolve_env

_CALL_S = 120.0
"""Deadline of a call to an environment in its own process."""


def make_as_configured(
    config: EnvConfig, render_mode: str | None = None
) -> "gymnasium.Env[Any, Any]":
    """Make an environment, in its own process if needed (`env.processes: each`)."""
    if config.processes == EACH:
        return EnvProcesses(EACH).make(resolve_env(config), render_mode, _CALL_S)
    return resolve_env(config).make(render_mode)


@contextmanager
def open_env(
    config: EnvConfig, render_mode: str | None = None
) -> "Iterator[gymnasium.Env[Any, Any]]":
    """Make an environment for a check and close it, ignoring errors that `check_close` reports."""
    instance = make_as_configured(config, render_mode)
    try:
        yield instance
    finally:
        with suppress(Exception, SystemExit):
            instance.close()
