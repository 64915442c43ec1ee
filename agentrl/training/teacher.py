"""Resolve the teacher of on-policy distillation, and check that it reads the policy's tokens."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.algorithms.core.algorithm import SELF, START
from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.files import path_of
from agentrl.policies.models.model_loading import adapter_for
from agentrl.policies.models.model_source import (
    check_model,
    check_policy,
    is_on_hub,
    local_folder,
    resolve_model,
    tokenizer_folder,
)
from agentrl.runs.run_folder import RunFolder, known_runs
from agentrl.text.name_suggestions import did_you_mean
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.command_target import open_target

_SETTING = "algorithm.teacher"
_SCREEN = (84, 56, 3)
"""Height, width and channels of the image with which two models are compared."""


def check_teacher(teacher: str, model: ModelConfig) -> None:
    """Check that a teacher exists and, without the Hub, that it reads the policy's tokens.

    Args:
        teacher: see `algorithm.teacher`.
        model: the policy's model, which has been checked.

    Raises:
        ConfigError: there is no such run, checkpoint or model, or it reads other tokens.
    """
    if teacher in (START, SELF):
        return
    own = teacher_model(teacher, model)
    if is_on_hub(own) or is_on_hub(model):
        return
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        start = tokenizer_folder(model, Path(scratch) / "model")
        _check_same_tokens(teacher, local_folder(own), start, model)


def open_teacher(teacher: str, model: ModelConfig, start: Path, into: Path) -> Path:
    """Return the folder of a teacher's model; downloads or exports it if necessary.

    Args:
        teacher: see `algorithm.teacher`.
        model: the policy's model.
        start: folder of the policy's model.
        into: where to export a checkpoint, unless this folder exists.

    Raises:
        ConfigError: the teacher does not exist, is damaged, or reads other tokens.
    """
    if teacher in (START, SELF):
        return start
    run = _run_of_checkpoint(teacher)
    if run is not None:
        if not into.is_dir():
            # Imported late: this loads torch, which takes seconds.
            from agentrl.training.checkpoints.model_export import export_checkpoint

            export_checkpoint(run, into, _step_of(teacher))
        folder = into
    else:
        folder = resolve_model(teacher_model(teacher, model), 0, into)
    _check_same_tokens(teacher, folder, start, model)
    return folder


def teacher_model(teacher: str, model: ModelConfig) -> ModelConfig:
    """Return the settings of a model with the teacher's configuration, and the same size.

    Args:
        teacher: see `algorithm.teacher`; not `start` or `self`, which are the policy's model.
        model: the policy's model.

    Raises:
        ConfigError: there is no such run, checkpoint or model.
    """
    if (run := _run_of_checkpoint(teacher)) is not None:
        run_folder = RunFolder.existing(run)
        checkpoint_store.by_name(run_folder.path, _step_of(teacher))
        if run_folder.start.is_dir():
            return replace(model, path=str(run_folder.start))
        return open_target(run).config.model
    folder = path_of(teacher, _SETTING)
    if (folder / "config.yaml").is_file():
        run_folder = RunFolder.existing(folder)
        if not run_folder.model.is_dir():
            raise ConfigError(
                f"{_SETTING}={teacher}: this run has no final model yet; resume it, or name one of "
                f"its checkpoints ({teacher}/checkpoints/step-N)"
            )
        folder = run_folder.model
    if teacher == "tiny":
        raise ConfigError(
            f"{_SETTING}=tiny: a new tiny model knows nothing; name a run or a model's folder"
        )
    if not folder.is_dir() and folder.parent.name == "runs":  # would be taken for an id on the Hub
        raise ConfigError(f"{_SETTING}={teacher}: no such run{did_you_mean(teacher, known_runs())}")
    own = replace(model, path=str(folder) if folder.is_dir() else teacher)
    try:
        check_model(own)
        check_policy(own)
    except ConfigError as error:
        reason = str(error).removeprefix(f"model.path={own.path}: ")
        raise ConfigError(f"{_SETTING}={teacher}: {reason}") from error
    return own


def _run_of_checkpoint(teacher: str) -> Path | None:
    folder = path_of(teacher, _SETTING)
    is_checkpoint = folder.parent.name == "checkpoints" and folder.name.startswith("step-")
    return folder.parent.parent if is_checkpoint else None


def _step_of(checkpoint: str) -> str:
    return str(checkpoint_store.step_of(Path(checkpoint)))


def _check_same_tokens(teacher: str, folder: Path, start: Path, model: ModelConfig) -> None:
    """Check that two models have the same vocabulary and read images in the same way.

    Raises:
        ConfigError: they differ.
    """
    theirs, own = adapter_for(folder, model.adapter), adapter_for(start, model.adapter)
    difference = None
    if _vocabulary(folder) != _vocabulary(start):
        difference = "has another vocabulary"
    elif theirs.image_token_id != own.image_token_id:
        difference = "has another image token"
    elif own.image_token_id is not None:
        screen = np.random.default_rng(0).integers(0, 255, _SCREEN, np.uint8)
        image = own.scale(screen, None, model.max_pixels)
        pixels, others = own.pixels([image]), theirs.pixels([image])
        same = pixels.keys() == others.keys() and all(pixels[n].equal(others[n]) for n in pixels)
        if theirs.image_markup(image) != own.image_markup(image) or not same:
            difference = "reads images in another way"
    if difference is not None:
        raise ConfigError(
            f"{_SETTING}={teacher}: {difference} than the policy ({model.path}), whose tokens it "
            "has to score; choose a teacher of the same family"
        )


def _vocabulary(folder: Path) -> dict[str, Any]:
    """Return the ids of all tokens, by token."""
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in tree.get("added_tokens", [])}
    vocabulary = tree["model"].get("vocab", {})
    # Unigram vocabularies are lists of tokens with their scores.
    if isinstance(vocabulary, list):
        vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
    return {**vocabulary, **added}
