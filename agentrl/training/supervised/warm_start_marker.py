"""What a model's folder says of the warm starts that its weights have had.

It stands in a small file that transformers and vLLM do not read, and goes along when the model is
exported: everything in its folder but the weights is copied.
"""

import json
from pathlib import Path
from typing import Any

from agentrl import env
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.files import write_durably

_FILE = "agentrl.json"
_KEY = "warm_starts"


def is_warm(config: Config, folder: Path) -> bool:
    """Whether a job goes without its warm start, as the model in this folder has had one.

    Raises:
        ConfigError: the folder's mark is broken.
    """
    warm = config.warm_start
    return warm is not None and not warm.again and _game(config) in _read(folder)


def mark(config: Config, folder: Path) -> None:
    """Write the warm start of this job, if it has one, into the folder of the model it made."""
    warm = config.warm_start
    if warm is not None and not is_warm(config, folder):
        had: dict[str, Any] = {
            "player": warm.player,
            "episodes": warm.episodes,
            "steps": warm.steps,
        }
        if warm.recorded:
            had["recorded"] = warm.recorded
        told = {_KEY: _read(folder) | {_game(config): had}}
        write_durably(folder / _FILE, json.dumps(told, indent=1) + "\n")


def _game(config: Config) -> str:
    """The environment's registered name, however the configuration leads to it."""
    return env.game(config.env.id).id


def _read(folder: Path) -> dict[str, Any]:
    """Warm starts by environment."""
    file = folder / _FILE
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))[_KEY])
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read: {error}. Without it, the model counts as one that has had "
            "no warm start."
        ) from error
