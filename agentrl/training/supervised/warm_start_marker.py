"""Marks a model's folder with the warm starts that its weights have had.

The marker is a small file, `agentrl.json`, which transformers and vLLM ignore. It survives exports,
because everything in the folder except the weights is copied.
"""

import json
from pathlib import Path
from typing import Any

from agentrl import env
from agentrl.config import Config, EnvConfig
from agentrl.errors import ConfigError
from agentrl.files import write_durably

_FILE = "agentrl.json"
_KEY = "warm_starts"


def has_warm_start(config: Config, folder: Path) -> bool:
    """Whether a job skips its warm start, because the model in this folder has had one.

    Raises:
        ConfigError: the folder's marker is damaged.
    """
    warm = config.warm_start
    return warm is not None and not warm.repeat and _game(config.env) in _read(folder)


def write_marker(config: Config, folder: Path) -> None:
    """Record the job's warm start, if it has one, in the folder of the resulting model."""
    warm = config.warm_start
    if warm is not None and not has_warm_start(config, folder):
        record: dict[str, Any] = {
            "player": warm.player,
            "episodes": warm.episodes,
            "steps": warm.steps,
        }
        if warm.recorded:
            record["recorded"] = warm.recorded
        tree = {_KEY: _read(folder) | {_game(config.env): record}}
        write_durably(folder / _FILE, json.dumps(tree, indent=1) + "\n")


def _game(config: EnvConfig) -> str:
    """The environment's registered id, however the configuration names it."""
    return env.find_env(config.id).id


def _read(folder: Path) -> dict[str, Any]:
    """Warm starts by environment."""
    file = folder / _FILE
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))[_KEY])
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read: {error}. Restore it, or delete it: the model then counts as "
            "one without a warm start."
        ) from error
