"""The files of a model's folder: JSON, added tokens, and safetensors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model's folder.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"model.path={path.parent}: no {path.name} in this folder") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must contain an object, not {type(content).__name__}")
    return content


def token_ids_of(path: Path, names: Sequence[str]) -> Mapping[str, int]:
    """The ids of those added tokens that a tokenizer has."""
    added = read_json(path / "tokenizer.json").get("added_tokens", [])
    return {token["content"]: int(token["id"]) for token in added if token["content"] in names}


def check_weights(path: Path) -> None:
    """Check by their headers that the safetensors files of a model's folder are complete.

    Raises:
        ConfigError: one is not.
    """
    from safetensors import SafetensorError, safe_open

    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file}: cannot be read as weights: {error}. Download or export the model again."
            ) from error
