"""The argument that names an environment, or a configuration or run that contains one."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.config import Config


def target_of(name: str) -> "Config | str":
    """The file, run or packaged configuration of that name, or else the environment of that name.

    Raises:
        ConfigError: it is a path in an existing folder, but there is no such file.
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
        raise ConfigError(f"{name}: no such file or folder{did_you_mean(last, there)}")
    return configuration.Config(
        env=configuration.EnvConfig(id=name),
        rollout=configuration.RolloutConfig(engine="hf", launcher="local"),
    )
