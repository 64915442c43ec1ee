"""What a command is about: an environment's name, or a configuration that names one."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.config import Config


def target_of(name: str) -> "Config | str":
    """What is no file, no run and no packaged configuration is the name of an environment."""
    from agentrl import config as configuration

    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_dir()
    if is_file or configuration.is_packaged(name):
        return name
    return configuration.Config(
        env=configuration.EnvConfig(id=name),
        rollout=configuration.RolloutConfig(engine="hf", launcher="local"),
    )
