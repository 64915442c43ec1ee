"""Prepare folders with the configurations of a job's models, but without weights."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrl.algorithms.core.algorithm import SELF, START
from agentrl.config import ModelConfig
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_source import (
    find_config,
    is_on_hub,
    local_folder,
    tokenizer_folder,
)
from agentrl.runs.run_folder import RunFolder
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.teacher import teacher_model

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


def are_configs_here(learner: LearnerSettings, run: Path | None = None) -> bool:
    """Return whether a job needs no download for the configurations of policy and teacher."""
    teacher = _teacher_model(learner, run)
    return is_config_here(learner.model) and (teacher is None or is_config_here(teacher))


def teacher_config_folder(
    learner: LearnerSettings, folder: Path, run: Path | None = None
) -> Path | None:
    """Write the configuration of a job's teacher to a new folder; None if it is the policy's.

    Args:
        learner: the job's learner.
        folder: where to write it.
        run: the folder of the run to resume, which may have exported its teacher; None for a new
            run.

    Raises:
        ConfigError: the teacher does not exist, or has no configuration.
    """
    model = _teacher_model(learner, run)
    return None if model is None else config_folder(model, folder)


def _teacher_model(learner: LearnerSettings, run: Path | None) -> ModelConfig | None:
    teacher = learner.algorithm.requires.teacher
    if teacher in (None, START, SELF):
        return None
    if run is not None and (exported := RunFolder(run).teacher).is_dir():
        return replace(learner.model, path=str(exported))
    return teacher_model(teacher, learner.model)


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
