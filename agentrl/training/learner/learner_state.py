"""The learner's complete state on disk: weights, optimizers, counters and random state."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from agentrl.config import LoraConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import load_on_meta
from agentrl.policies.models.model_loading import SCORE
from agentrl.training.learner import four_bit_weights, lora_adapters
from agentrl.training.learner.learner_models import LearnerModels
from agentrl.training.learner.parallel import sharded_checkpoint
from agentrl.training.learner.parallel.sharding import local_shard

_log = logging.getLogger(__name__)

POLICY = "policy/"
"""Prefix of the policy's weights."""
_LORA = "model.lora"


def save(models: LearnerModels, version: int, folder: Path) -> None:
    """Write the state; a collective call, each rank writes its shards.

    Raises:
        OSError: the disk is full.
    """
    sharded_checkpoint.write(folder, *_state(models, version), main=models.rank.number == 0)


def begin_save(
    models: LearnerModels, version: int, folder: Path, group: ProcessGroup
) -> sharded_checkpoint.BackgroundWrite:
    """Save the state like `save`, while training continues."""
    return sharded_checkpoint.BackgroundWrite(
        folder, *_state(models, version), main=models.rank.number == 0, group=group
    )


def num_bytes(models: LearnerModels) -> int:
    """Return the size in bytes of this rank's part of the state."""
    shards = map(local_shard, models.state_tensors().values())
    return sum(shard.numel() * shard.element_size() for shard in shards)


def _state(models: LearnerModels, version: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, which share the models' memory, and the plain values."""
    plain = {
        "job": _identity(models),
        "parts": sorted(models.optimizers()),
        "reference": "reference" in models.initialized,
        "steps": {part: optimizer.steps for part, optimizer in models.optimizers().items()},
        "critic_began": "critic" in models.initialized,
        "skipped_updates": models.skipped_updates,
        "version": version,
    }
    return models.state_tensors() | {"rng": torch.get_rng_state()}, plain


def restore(models: LearnerModels, folder: Path) -> int:
    """Read the state, with any number of ranks; a collective call.

    Returns:
        The version of the weights.

    Raises:
        ConfigError: the state is broken, belongs to a different model or job, or was saved during
            supervised training, which `models` has not begun.
    """
    plain = sharded_checkpoint.read_plain(folder)
    try:
        return _restore(models, folder, plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise _incomplete(folder, error) from error


def _restore(models: LearnerModels, folder: Path, plain: Mapping[str, Any]) -> int:
    for key, value in _identity(models).items():
        _check_same(plain["job"], key, value)
    trained = set(plain["parts"])
    if "supervised" in trained and models.offline is None:
        raise ConfigError(
            "this state was saved during supervised training; call begin_offline first"
        )
    # Keep a saved reference model even if it is not needed now, so that the next checkpoint has it.
    if plain["reference"] and models.reference is None:
        models.reference = models.make_reference()
    if (
        plain["version"]
        and models.settings.algorithm.requirements().reference
        and not plain["reference"]
    ):
        _log.warning(
            "%s: the KL divergence is measured against the current model, because this checkpoint "
            "was saved with algorithm.kl.add_to=none and has no reference model",
            folder,
        )
    saved = {
        "reference": plain["reference"],
        "critic": plain["critic_began"],
        "implicit": "implicit" in trained,
    }
    # Set this before reading the tensors, because only initialized models are part of the state.
    models.initialized = {name for name, was in saved.items() if was}
    rng = torch.get_rng_state()
    sharded_checkpoint.read_into(folder, models.state_tensors() | {"rng": rng}, POLICY)
    for part, optimizer in models.optimizers().items():
        steps = plain["steps"][part]
        optimizer.steps = {name: _count(steps[name]) for name in optimizer.steps}
    models.skipped_updates = _count(plain["skipped_updates"])
    torch.set_rng_state(rng)
    return _count(plain["version"])


def check_model(folder: Path, source: Path, lora: LoraConfig) -> None:
    """Check that a state belongs to a model, without reading its weights.

    Raises:
        ConfigError: the state belongs to a different model, has different adapters, or is broken.
    """
    try:
        _check_same(sharded_checkpoint.read_plain(folder)["job"], _LORA, _lora_identity(lora))
    except (KeyError, TypeError) as error:
        raise _incomplete(folder, error) from error
    model = load_on_meta(source)
    asked = {f"{POLICY}{n}": tuple(p.shape) for n, p in model.named_parameters()}
    # A tied weight is also saved under its second name if the model's files hold both.
    both = {f"{POLICY}{n}" for n, _ in model.named_parameters(remove_duplicate=False)}
    stored = {
        n: s for n, s in sharded_checkpoint.stored_shapes(folder).items() if n.startswith(POLICY)
    }
    kept = four_bit_weights.dequantized_shapes(
        stored, lambda name: asked.get(lora_adapters.base_name(name) or "", ())
    )
    plain = {n: s for name, s in kept.items() if (n := lora_adapters.base_name(name)) is not None}
    # A reward model has a scalar head in place of the output head of the model's folder.
    if f"{POLICY}{SCORE}" in plain:
        asked[f"{POLICY}{SCORE}"] = plain[f"{POLICY}{SCORE}"]
        asked.pop(f"{POLICY}lm_head.weight", None)
    tied = both - asked.keys()
    sharded_checkpoint.check_shapes(
        folder, {n: s for n, s in plain.items() if n not in tied}, asked, POLICY
    )


def _check_same(job: Mapping[str, Any], key: str, value: str) -> None:
    if job[key] != value:
        raise ConfigError(
            f"this checkpoint belongs to a different job: it was saved with {key}={job[key]!r}, "
            f"but this job has {key}={value!r}"
        )


def _incomplete(folder: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"{folder}: this checkpoint is incomplete: {error!r}. Remove it to use an earlier one."
    )


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a non-negative integer")
    return value


def _identity(models: LearnerModels) -> dict[str, str]:
    """Return the settings that a checkpoint must have been saved with, by name."""
    settings = models.settings
    return {
        "model.path": settings.model.path,
        "model.freeze_vision": str(settings.model.freeze_vision),
        _LORA: _lora_identity(settings.model.lora),
        "train.master_dtype": settings.train.master_dtype,
        "optim.moments": _moments(settings.optim.moments, settings.train.tensor_parallel),
        "env.id": settings.env_id,
        "algorithm.name": settings.algorithm.config.name,
    }


def _moments(moments: str, tensor: int) -> str:
    """Describe the moments' format; 8-bit blocks end where tensor parallelism splits columns."""
    divided = moments == "8bit" and tensor > 1
    return f"{moments} with train.tensor_parallel={tensor}" if divided else moments


def _lora_identity(lora: LoraConfig) -> str:
    """Return the adapter settings that the state depends on, except how engines get them."""
    return str(replace(lora, serve="merged"))
