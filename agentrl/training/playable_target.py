"""Targets of the commands that play: a run, a configuration, an environment, or a model."""

import re
from pathlib import Path

import gymnasium

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
from agentrl.text import did_you_mean

_ENV_VERSION = re.compile(r"-v\d+$")
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
