"""The environment that the settings of `agentrl check env`, `translator` and `player` describe."""

from collections.abc import Sequence

from agentrl import config as configuration
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.training.target import named_job

_ID = "env.id="


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
