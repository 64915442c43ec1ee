"""Sizes of a job's weights and learner state, computed from the model's configuration alone."""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.config import ModelConfig
from agentrl.files import path_of
from agentrl.policies.models import adapter_for, load_on_meta
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_source import find_config, is_on_hub, tokenizer_folder
from agentrl.training.learner.learner_settings import LearnerSettings

_KNOWN = Path(__file__).parents[2] / "configs" / "models"
"""Folder with the configurations of well-known models, which need not be downloaded."""
_MASTER = 4
"""Bytes of a trained weight, including the lower bits of a bfloat16 weight."""
_MOMENTS = {"float32": 8, "bfloat16": 4, "8bit": 2}


@dataclass(slots=True, kw_only=True, frozen=True)
class LearnerStateSize:
    """Sizes in bytes of a job's weights and learner state, over all ranks.

    Adapters, value heads and the scales of 8-bit moments are not counted.
    """

    model: int
    """Size of the weights in `model.dtype`, as published and exported."""
    state: int
    """Size of a checkpoint: weights and moments, including a critic or reference."""
    moments: int
    """Size of the part of the state that `optim.offload_moments` offloads."""
    gradients: int

    @classmethod
    def of(
        cls,
        folder: Path,
        learner: LearnerSettings,
    ) -> "LearnerStateSize":
        """Compute the sizes from the shapes in a folder with the model's config.json.

        Raises:
            ConfigError: the model's configuration cannot be read.
        """
        import torch

        model = learner.model
        model_adapter = adapter_for(folder, model.adapter)
        trained = frozen = 0
        for name, parameter in load_on_meta(folder).named_parameters():
            if model.lora.rank or (model.freeze_vision and model_adapter.is_vision(name)):
                frozen += parameter.numel()
            else:
                trained += parameter.numel()
        itemsize = getattr(torch, model.dtype).itemsize
        base = 0.5 if model.lora.rank and model.lora.base == "nf4" else itemsize
        requires = learner.algorithm.requirements()
        copies = 1 + (requires.critic is not None) + (requires.implicit_reward is not None)
        references = int(requires.reference)
        moments = copies * trained * _MOMENTS[learner.optim.moments]
        weights = copies * (trained * _MASTER + math.ceil(frozen * base))
        return cls(
            model=(trained + frozen) * itemsize,
            state=weights + moments + references * (trained + frozen) * itemsize,
            moments=moments,
            gradients=copies * trained * getattr(torch, learner.train.master_dtype).itemsize,
        )


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
        source = find_config(model) if is_on_hub(model) else path_of(model.path, "model.path")
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
