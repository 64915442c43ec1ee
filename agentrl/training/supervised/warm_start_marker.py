"""Marks a model's folder with the warm starts that its weights have had.

The marker is a small file, `agentrl.json`, which transformers and vLLM ignore. It survives exports,
because everything in the folder except the weights is copied.
"""

import json
from pathlib import Path
from typing import Any

from agentrl import env
from agentrl.config import WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.files import write_durably

_FILE = "agentrl.json"
_KEY = "warm_starts"


def has_warm_start(folder: Path, warm: WarmStartConfig, env_id: str) -> bool:
    """Whether a job skips its warm start, because the model in this folder has had one.

    Raises:
        ConfigError: the folder's marker is damaged.
    """
    return not warm.repeat and _registered_id(env_id) in _read(folder)


def write_marker(folder: Path, warm: WarmStartConfig, env_id: str) -> None:
    """Record a warm start in the folder of the resulting model."""
    if not has_warm_start(folder, warm, env_id):
        record: dict[str, Any] = {
            "player": warm.player,
            "episodes": warm.episodes,
            "steps": warm.steps,
        }
        if warm.recorded:
            record["recorded"] = warm.recorded
        tree = {_KEY: _read(folder) | {_registered_id(env_id): record}}
        write_durably(folder / _FILE, json.dumps(tree, indent=1) + "\n")


def _registered_id(env_id: str) -> str:
    """The environment's registered id, however the configuration names it."""
    return env.find_env(env_id).id


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
