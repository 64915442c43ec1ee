"""Prepare a folder with a model's configuration, but without its weights."""

import json
import shutil
from pathlib import Path
from typing import Any

from agentrl.config import ModelConfig
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_source import (
    find_config,
    is_on_hub,
    local_folder,
    tokenizer_folder,
)

_KNOWN = Path(__file__).parents[2] / "configs" / "models"
"""Folder with the configurations of well-known models, which need not be downloaded."""


def is_config_here(model: ModelConfig) -> bool:
    """Return whether `config_folder` needs no download."""
    from huggingface_hub import try_to_load_from_cache

    if not is_on_hub(model) or _known_config(model) is not None:
        return True
    return isinstance(try_to_load_from_cache(model.path, "config.json"), str)


def _known_config(model: ModelConfig) -> Path | None:
    """Return the packaged config.json of a Hub model, if any."""
    found = _KNOWN / f"{Path(model.path).name}.json"
    return found if is_on_hub(model) and found.is_file() else None


def config_folder(model: ModelConfig, folder: Path) -> Path:
    """Write a model's configuration, without weights, to a new folder.

    Raises:
        ConfigError: the model has no configuration.
    """
    if model.path == "tiny":
        return tokenizer_folder(model, folder)
    if (known := _known_config(model)) is not None:
        folder.mkdir()
        shutil.copy(known, folder / "config.json")
    else:
        source = find_config(model) if is_on_hub(model) else local_folder(model)
        read_json(source / "config.json")
        folder.mkdir()
        for file in source.iterdir():
            if file.suffix in (".json", ".jinja", ".txt", ".model"):
                shutil.copy(file, folder / file.name)
    _add_missing(folder)
    return folder


def _add_missing(folder: Path) -> None:
    """Add files that adapters read, but that do not affect memory."""
    config = read_json(folder / "config.json")
    keys = ("vision_start", "vision_end", "image", "video")
    names = ("vision_start", "vision_end", "image_pad", "video_pad")
    ids = [config.get(f"{key}_token_id", 0) for key in keys]
    added = [{"content": f"<|{name}|>", "id": id} for name, id in zip(names, ids, strict=True)]
    stand_ins: dict[str, Any] = {
        "preprocessor_config.json": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "tokenizer.json": {"added_tokens": added},
    }
    for name, content in stand_ins.items():
        if not (folder / name).is_file():
            (folder / name).write_text(json.dumps(content))
