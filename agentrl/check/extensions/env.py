"""Checks of an environment with its translator and players; settings are those of a job."""

from collections.abc import Iterator, Sequence
from typing import Any

from agentrl import config as configuration
from agentrl.check.environments import check_environment, environment_checks
from agentrl.check.finding import Finding
from agentrl.check.runner import Check
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.training.command_target import named_job

_ID = "env.id="


def checks_of(target: str, settings: Sequence[str]) -> list[Check]:
    """The checks of an environment, which is named as `env.id` or by a YAML file."""
    return environment_checks(env_config_of(target, settings))


def findings(
    target: str, settings: Sequence[str], deadline_s: float, **options: Any
) -> Iterator[Finding]:
    """Run them; `options` are further arguments of `check_environment`."""
    yield from check_environment(env_config_of(target, settings), deadline_s=deadline_s, **options)


def next_command(target: str) -> tuple[str, ...]:
    """A YAML file is trained; for another environment, one is written first."""
    is_file = target.endswith((".yaml", ".yml"))
    return ("train", target) if is_file else ("init", "--env", target)


def env_config_of(target: str, settings: Sequence[str]) -> EnvConfig:
    """The environment of a target, a name as in `env.id` or a YAML file, with settings applied.

    Raises:
        ConfigError: see `agentrl.config.load`.
    """
    return configuration.resolve(named_job(target), settings).env


def env_config_from(settings: Sequence[str], id: str | None, what: str) -> EnvConfig:
    """The environment of settings alone.

    Args:
        settings: `key=value` overrides.
        id: of the environment, unless the settings name one; None if it is not known.
        what: is checked, for the message.

    Raises:
        ConfigError: no environment is named.
    """
    named = [one.removeprefix(_ID) for one in settings if one.startswith(_ID)]
    target = named[-1] if named else id
    if target is None:
        raise ConfigError(f"{what}: name its environment as well, such as env.id=my_game.py:MyEnv")
    return env_config_of(target, [one for one in settings if not one.startswith(_ID)])
