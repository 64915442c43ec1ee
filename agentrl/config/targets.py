"""Targets that commands accept besides a configuration: a run, an environment, or a model."""

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.config.env_settings import EnvConfig
from agentrl.config.loading import is_packaged
from agentrl.config.model_settings import ModelConfig
from agentrl.config.rollout_settings import RolloutConfig
from agentrl.config.sections import Config
from agentrl.errors import ConfigError
from agentrl.files import write_json
from agentrl.text import did_you_mean

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_ENV_VERSION = re.compile(r"-v\d+")
_RECORD = "agentrl.json"
"""A file in a model's folder. It survives exports, which copy everything but the weights;
transformers and vLLM ignore it."""
_IMAGES, _SIZES = "images", ("image_size", "max_pixels")


def target_of(name: str) -> Config | str:
    """The file, run or packaged configuration of that name, or else the environment of that name.

    Raises:
        ConfigError: it is a path in an existing folder, but there is no such file.
    """
    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_dir()
    if is_file or is_packaged(name):
        return name
    folder, slash, last = name.rpartition("/")
    if slash and ":" not in name:
        parent = Path(folder or "/")
        if parent.is_dir() or parent.name == "runs":  # an id may have a namespace, as ALE/Pong-v5
            there = [path.name for path in parent.iterdir()] if parent.is_dir() else []
            raise ConfigError(f"{name}: no such file or folder{did_you_mean(last, there)}")
    return Config(
        env=EnvConfig(id=name),
        rollout=RolloutConfig(engine="hf", launcher="local"),
    )


def missing_run(path: Path | str) -> ConfigError:
    """The error for the folder of a run that does not exist."""
    hint = did_you_mean(str(path), known_runs()) or "; expected a folder such as runs/NAME"
    return ConfigError(f"{path}: no such run{hint}; agentrl runs lists them")


def known_runs() -> list[str]:
    """The runs in the folder `runs`, as commands accept them, such as `runs/NAME`."""
    return [str(file.parent) for file in sorted(Path("runs").glob("*/config.yaml"))]


def known_models() -> list[str]:
    """The folders of models in the current folder and in its runs."""
    found = (*Path().glob("*/config.json"), *Path("runs").glob("*/model/config.json"))
    return [str(file.parent) for file in sorted(found)]


def model_target(name: str) -> Config | None:
    """The configuration that plays with a model, if that is a model's folder or an id of the hub.

    Images have the size that a run's model was trained with. Replies may have up to 1024 tokens.
    The engine is vLLM where it is installed, without Ray.

    Returns:
        None if the name is that of something else.
    """
    folder = Path(name)
    is_model = (folder / "config.json").is_file() and not (folder / "config.yaml").is_file()
    is_id = _HUB_ID.fullmatch(name) is not None and not _ENV_VERSION.search(name)
    is_path = folder.exists() or folder.parent.exists() or folder.parent.name == "runs"
    if not is_model and (is_path or not is_id):
        return None
    engine = "hf" if find_spec("vllm") is None else "vllm"
    return Config(
        model=model_config(name),
        rollout=RolloutConfig(
            engine=engine, launcher="local", max_new_tokens=1024, max_context=8192
        ),
    )


def model_config(path: str) -> ModelConfig:
    """The settings of a model, whose images have the size that it was trained with, if known."""
    return ModelConfig(path=path, **trained_image_sizes(path))


def trained_image_sizes(path: str) -> dict[str, Any]:
    """The `image_size` and `max_pixels` that a model was trained with; empty if unknown.

    Raises:
        ConfigError: the record in the model's folder is damaged.
    """
    return dict(model_record(Path(path).expanduser()).get(_IMAGES, {}))


def record_image_sizes(folder: Path, model: ModelConfig) -> None:
    """Record the size of a model's images in its folder."""
    extend_record(folder, {_IMAGES: {name: getattr(model, name) for name in _SIZES}})


def extend_record(folder: Path, entries: Mapping[str, Any]) -> None:
    """Add to the record in a model's folder; an entry replaces the one of its name."""
    tree = {**model_record(folder), **entries}
    write_json(folder / _RECORD, tree)


def model_record(folder: Path) -> dict[str, Any]:
    """Read agentrl's own facts about a model, by name; empty if its folder has no record.

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
            f"{file}: cannot be read: {error}. Restore it, or delete it: the model then counts as "
            "one without a warm start, and the size of its images as unknown."
        ) from error
