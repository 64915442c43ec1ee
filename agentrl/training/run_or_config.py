"""Resolve the target of a command: a run's folder, a configuration or an environment's name."""

from collections.abc import Sequence
from pathlib import Path

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.training.run_folder import RunFolder


def open_target(
    target: Config | str | Path, overrides: Sequence[str]
) -> tuple[Config, Path | None]:
    """The target's configuration, and the run's folder if the target is one."""
    if isinstance(target, Config):
        return configuration.resolve(target, overrides), None
    run = Path(target)
    if not run.is_dir():
        return configuration.load(target, overrides), None
    RunFolder.existing(run)
    return configuration.load(run / "config.yaml", overrides), run


def overridden_name(name: str | None, overrides: Sequence[str]) -> str | None:
    """`run.name` if an override sets it: the name in a run's stored configuration is taken."""
    is_set = any(override.partition("=")[0].strip() == "run.name" for override in overrides)
    return name if is_set else None
