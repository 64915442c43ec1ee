"""All that the next steps of a learner depend on, on the disk."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agentrl.algorithms import requirements
from agentrl.config import Config, LoraConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import skeleton
from agentrl.training.checkpoints import tensor_shards
from agentrl.training.learner import lora_adapters, qlora
from agentrl.training.learner.learner_models import Parts

_log = logging.getLogger(__name__)

POLICY = "policy/"
"""The names of the policy's weights begin so."""
_LORA = "model.lora"


def save(parts: Parts, version: int, folder: Path) -> None:
    """Write it; a collective call, each rank its shards.

    Args:
        parts: the learner's.
        version: of its weights.
        folder: where.

    Raises:
        OSError: the disk is full.
    """
    plain = {
        "job": _identity(parts.config),
        "parts": sorted(parts.optimizers()),
        "reference": parts.reference is not None,
        "steps": {part: optimizer.steps for part, optimizer in parts.optimizers().items()},
        "critic_began": parts.critic is not None and parts.critic.began,
        "optimizer_steps": parts.optimizer_steps,
        "version": version,
    }
    tensors = parts.live() | {"rng": torch.get_rng_state()}
    tensor_shards.write(folder, tensors, plain, main=parts.rank.number == 0)


def restore(parts: Parts, folder: Path) -> int:
    """Read it into the learner's parts, also with another number of ranks; a collective call.

    Returns:
        The version of the weights.

    Raises:
        ConfigError: it is broken, belongs to another model or job, or was taken while cloning,
            which has not begun.
    """
    plain = tensor_shards.plain(folder)
    try:
        return _restore(parts, folder, plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise _not_whole(folder, error) from error


def _restore(parts: Parts, folder: Path, plain: Mapping[str, Any]) -> int:
    for key, value in _identity(parts.config).items():
        _check_same(plain, key, value)
    trained = set(plain["parts"])
    if "cloning" in trained and parts.cloner is None:
        raise ConfigError("this state was taken while cloning; begin cloning first")
    if plain["reference"] and parts.reference is None:
        parts.reference = parts.make_reference()
    if (
        plain["version"]
        and requirements.reference(parts.config.algorithm)
        and not plain["reference"]
    ):
        _log.warning(
            "%s: has no reference, as algorithm.kl was none: the divergence is measured from the "
            "model as it is now",
            folder,
        )
    if "implicit" in trained and parts.implicit is None:
        parts.implicit = parts.make_implicit()
    rng = torch.get_rng_state()
    tensor_shards.read_into(folder, parts.live() | {"rng": rng}, POLICY)
    for part, optimizer in parts.optimizers().items():
        steps = plain["steps"][part]
        optimizer.steps = {name: _count(steps[name]) for name in optimizer.steps}
    if parts.critic is not None:
        parts.critic.began = plain["critic_began"]
    parts.optimizer_steps = _count(plain["optimizer_steps"])
    torch.set_rng_state(rng)
    return _count(plain["version"])


def check_model(folder: Path, source: Path, lora: LoraConfig) -> None:
    """See whether a learner's state is of a model, without reading its weights.

    Args:
        folder: as `save` wrote it.
        source: the model's folder as the run began.
        lora: the run's adapters.

    Raises:
        ConfigError: it is another model's or has other adapters, or is broken.
    """
    try:
        _check_same(tensor_shards.plain(folder), _LORA, _told(lora))
    except (KeyError, TypeError) as error:
        raise _not_whole(folder, error) from error
    model = skeleton(source)
    asked = {f"{POLICY}{n}": tuple(p.shape) for n, p in model.named_parameters()}
    # Of a tied weight the second name is kept where the model's own files have told the two apart.
    both = {f"{POLICY}{n}" for n, _ in model.named_parameters(remove_duplicate=False)}
    stored = {n: s for n, s in tensor_shards.stored(folder).items() if n.startswith(POLICY)}
    kept = qlora.shapes(stored, lambda name: asked.get(lora_adapters.plain_name(name) or "", ()))
    plain = {n: s for name, s in kept.items() if (n := lora_adapters.plain_name(name)) is not None}
    tied = both - asked.keys()
    tensor_shards.check_fit(
        folder, {n: s for n, s in plain.items() if n not in tied}, asked, POLICY
    )


def _check_same(plain: Mapping[str, Any], key: str, value: str) -> None:
    if plain["job"][key] != value:
        raise ConfigError(
            f"this checkpoint belongs to another job: its {key} is "
            f"{plain['job'][key]!r}, here it is {value!r}"
        )


def _not_whole(folder: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"{folder}: is not whole: {error!r}. Remove this checkpoint to use an earlier one."
    )


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _identity(config: Config) -> dict[str, str]:
    return {
        "model.path": config.model.path,
        "model.freeze_vision": str(config.model.freeze_vision),
        _LORA: _told(config.model.lora),
        "train.master_dtype": config.train.master_dtype,
        "env.id": config.env.id,
        "algorithm.estimator": config.algorithm.estimator,
    }


def _told(lora: LoraConfig) -> str:
    """Adapters; how engines are given them changes nothing of what is kept."""
    return str(replace(lora, serve="merged"))
