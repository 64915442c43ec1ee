"""What a command is about: an environment's name, or a configuration that names one."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.config import Config


def target_of(name: str) -> "Config | str":
    """What is no file, no run and no packaged configuration is the name of an environment.

    Raises:
        ConfigError: it is a path in a folder that is there, and nothing stands at its end.
    """
    from agentrl import config as configuration
    from agentrl.errors import ConfigError
    from agentrl.text import did_you_mean

    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_dir()
    if is_file or configuration.is_packaged(name):
        return name
    folder, slash, last = name.rpartition("/")
    if slash and ":" not in name and Path(folder or "/").is_dir():
        there = [path.name for path in Path(folder or "/").iterdir()]
        raise ConfigError(f"{name}: there is no such folder or file{did_you_mean(last, there)}")
    return configuration.Config(
        env=configuration.EnvConfig(id=name),
        rollout=configuration.RolloutConfig(engine="hf", launcher="local"),
    )
