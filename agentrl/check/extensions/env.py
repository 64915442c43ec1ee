"""Checks of an environment with its translator and players; settings are a job's."""

from collections.abc import Iterator, Sequence
from typing import Any

from agentrl import config as configuration
from agentrl.check.environments import check_environment, environment_checks
from agentrl.check.finding import Finding
from agentrl.check.runner import Check
from agentrl.config import Config, EnvConfig
from agentrl.errors import ConfigError
from agentrl.training.command_target import named_job

_ID = "env.id="


def checks_of(target: str, settings: Sequence[str]) -> list[Check]:
    """Return the checks of an environment named by its `env.id` or a YAML file."""
    job = _job_of(target, settings)
    return environment_checks(job.env, job.rewards)


def findings(
    target: str, settings: Sequence[str], deadline_s: float, **options: Any
) -> Iterator[Finding]:
    """Run the checks; `options` are further arguments of `check_environment`."""
    job = _job_of(target, settings)
    yield from check_environment(job.env, deadline_s=deadline_s, rewards=job.rewards, **options)


def next_command(target: str) -> tuple[str, ...]:
    """Suggest training a YAML file; for an environment id, writing a YAML file first."""
    is_file = target.endswith((".yaml", ".yml"))
    return ("train", target) if is_file else ("init", "--env", target)


def env_config_of(target: str, settings: Sequence[str]) -> EnvConfig:
    """Return the environment of a target, an `env.id` or a YAML file, with settings applied.

    Raises:
        ConfigError: see `agentrl.config.load`.
    """
    return _job_of(target, settings).env


def _job_of(target: str, settings: Sequence[str]) -> Config:
    return configuration.resolve(named_job(target), settings)


def env_config_from(settings: Sequence[str], id: str | None, what: str) -> EnvConfig:
    """Return the environment that settings alone describe.

    Args:
        settings: `key=value` overrides.
        id: environment id if the settings name none; None if unknown.
        what: the object being checked, for the error message.

    Raises:
        ConfigError: no environment is named.
    """
    named = [one.removeprefix(_ID) for one in settings if one.startswith(_ID)]
    target = named[-1] if named else id
    if target is None:
        raise ConfigError(f"{what}: name its environment as well, such as env.id=my_game.py:MyEnv")
    return env_config_of(target, [one for one in settings if not one.startswith(_ID)])
