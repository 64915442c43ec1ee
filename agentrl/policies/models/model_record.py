"""Facts about a model that agentrl records in its folder, such as the training image size."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.files import write_json

_RECORD = "agentrl.json"
"""Name of the file in a model's folder. Exports, which copy everything but the weights, keep it;
transformers and vLLM ignore it."""
_IMAGES, _SIZES = "images", ("image_size", "max_pixels")


def model_config(path: str) -> ModelConfig:
    """Return a model's settings, including the size of its training images if known."""
    return ModelConfig(path=path, **trained_image_sizes(path))


def trained_image_sizes(path: str) -> dict[str, Any]:
    """Return the `image_size` and `max_pixels` that a model was trained with; empty if unknown.

    Raises:
        ConfigError: the record in the model's folder is damaged.
    """
    return dict(model_record(Path(path).expanduser()).get(_IMAGES, {}))


def record_image_sizes(folder: Path, model: ModelConfig) -> None:
    """Record the size of a model's images in its folder."""
    extend_record(folder, {_IMAGES: {name: getattr(model, name) for name in _SIZES}})


def extend_record(folder: Path, entries: Mapping[str, Any]) -> None:
    """Add entries to the record in a model's folder, replacing entries of the same name."""
    tree = {**model_record(folder), **entries}
    write_json(folder / _RECORD, tree)


def model_record(folder: Path) -> dict[str, Any]:
    """Read the recorded facts about a model; empty if its folder has no record.

    Raises:
        ConfigError: the record is damaged.
    """
    file = folder / _RECORD
    if not file.is_file():
        return {}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if all(isinstance(entry, dict) for entry in record.values()):
            return dict(record)
        raise ValueError("its entries must be objects")
    except (AttributeError, OSError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read: {error}. Restore or delete it; without it, agentrl assumes "
            "that the model had no warm start and that its image size is unknown."
        ) from error
