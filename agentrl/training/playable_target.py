"""Targets of commands: a run, a configuration, an environment, or a model."""

import re
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from agentrl import config as configuration
from agentrl.config import (
    Config,
    known_models,
    known_runs,
    model_target,
    packaged_names,
    target_of,
)
from agentrl.env import find_env, registered_envs
from agentrl.errors import ConfigError
from agentrl.files import StrPath
from agentrl.runs.run_folder import TIME_SUFFIX, RunFolder
from agentrl.text import did_you_mean

_ENV_VERSION = re.compile(r"-v\d+$")
_PLAIN_NAMES = {"", "config", "configs", "settings", "tmp", "train", "training"}
"""Names of files and folders that describe no job."""
_LISTS = (
    ". agentrl runs lists the runs, agentrl envs list --all the environments; a configuration is a "
    "YAML file (agentrl init writes one) or comes with agentrl, such as sokoban"
)


def playable_target(name: str, *, may_be_model: bool = False) -> Config | str:
    """Check that what a command is to play exists, and return it as `open_target` takes it.

    Args:
        name: a run's folder, a YAML file, a packaged configuration, or an environment as in
            `env.id`.
        may_be_model: also the folder of a model, or its id on the Hugging Face Hub.

    Raises:
        ConfigError: it is none of these.
    """
    if may_be_model and (model := model_target(name)) is not None:
        return model
    known = target_of(name)
    if not isinstance(known, Config):
        return known
    try:
        find_env(known.env.id)
    except ConfigError as error:
        if ":" in name or _ENV_VERSION.search(name) is not None:
            raise  # it says what is wrong with an environment
        names = [*packaged_names(), *_yaml_files(), *known_runs()]
        names += [*(entry.id for entry in registered_envs()), *gymnasium.registry]
        names += known_models() if may_be_model else []
        kinds = "run, configuration, model folder" if may_be_model else "run, configuration"
        hint = did_you_mean(name, names) or _LISTS
        raise ConfigError(f"{name}: no such {kinds} or environment{hint}") from error
    return known


def _yaml_files() -> list[str]:
    return sorted(file.name for file in Path().glob("*.y*ml"))


def open_target(target: Config | StrPath, overrides: Sequence[str]) -> tuple[Config, Path | None]:
    """The target's configuration, and the run's folder if the target is one; paths are absolute."""
    if isinstance(target, Config) or not Path(target).is_dir():
        return configuration.with_absolute_paths(configuration.resolve(target, overrides)), None
    run = Path(target).absolute()
    RunFolder.existing(run)
    config = configuration.load(run / "config.yaml", overrides)
    return configuration.with_absolute_paths(config), run


def check_names_env(config: Config, target: Config | StrPath, overrides: Sequence[str]) -> None:
    """Check that a job that trained on a data set is not played on the default environment.

    Raises:
        ConfigError: neither its configuration nor an override names an environment.
    """
    is_given = any(override.startswith("env.id=") for override in overrides)
    if config.only_learns_from is not None and not is_given:
        name = "the configuration" if isinstance(target, Config) else target
        run = name if Path(name).is_dir() else "RUN"
        raise ConfigError(
            f"{name} learns from a data set (section {config.only_learns_from}) and names "
            "no environment to play; add env.id=..., name a configuration and the run's model "
            f"(CONFIG model.path={run}/model), or choose a suite (agentrl eval --suite)"
        )


def overridden_name(name: str | None, overrides: Sequence[str]) -> str | None:
    """`run.name` if an override sets it: the name in a run's stored configuration is taken."""
    is_set = any(override.partition("=")[0].strip() == "run.name" for override in overrides)
    return name if is_set else None


def job_name(source: Config | StrPath, config: Config) -> str:
    """The first part of the names of a job's runs.

    Args:
        source: a configuration, or its file or packaged name. A file with a name that says nothing,
            such as `config.yaml`, gives the name of its folder.
        config: the job, whose environment or data set names it where that says nothing, either.
    """
    if not isinstance(source, Config):
        path = Path(source)
        for name in (path.stem, path.absolute().parent.name):
            if name.lower() not in _PLAIN_NAMES:
                return re.sub(f"{TIME_SUFFIX}$", "", name)
    id = config.only_learns_from or config.env.id
    name = re.sub(r"-v\d+$", "", re.split(r"[/:]", id)[-1])
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name)).lower() or "run"
