"""What commands accept besides a configuration file: a packaged one's name, or an environment."""

from pathlib import Path

from agentrl.config.env_settings import EnvConfig
from agentrl.config.loading import is_packaged
from agentrl.config.rollout_settings import RolloutConfig
from agentrl.config.sections import Config
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean


def target_of(name: str) -> Config | str:
    """The file, run or packaged configuration of that name, or else the environment of that name.

    Raises:
        ConfigError: it is a path in an existing folder, but there is no such file.
    """
    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_dir()
    if is_file or is_packaged(name):
        return name
    folder, slash, last = name.rpartition("/")
    if slash and ":" not in name:
        parent = Path(folder or "/")
        if parent.is_dir() or parent.name == "runs":  # an id may have a namespace, as ALE/Pong-v5
            there = [path.name for path in parent.iterdir()] if parent.is_dir() else []
            raise ConfigError(f"{name}: no such file or folder{did_you_mean(last, there)}")
    return Config(
        env=EnvConfig(id=name),
        rollout=RolloutConfig(engine="hf", launcher="local"),
    )
