"""The bytes of a job's weights and of its learner's state, by its configuration alone."""

import math
from dataclasses import dataclass
from pathlib import Path

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.config import AlgorithmConfig, ModelConfig, OptimConfig
from agentrl.policies.models import adapter_for, load_on_meta

_MASTER = 4
"""Bytes of a trained weight, in bfloat16 those of its lower bits included."""
_MOMENTS = {"float32": 8, "bfloat16": 4, "8bit": 2}


@dataclass(slots=True, kw_only=True, frozen=True)
class JobSize:
    """The bytes of a job's weights and of its learner's state, of all ranks together.

    Adapters, value heads and the scales of 8-bit moments are not counted.
    """

    model: int
    """The weights in `model.dtype`, as they are published and exported."""
    state: int
    """Bytes of a checkpoint: weights, moments, and those of the critic or reference."""
    moments: int
    """The part of the state that `optim.offload_moments` moves."""
    gradients: int

    @classmethod
    def of(
        cls,
        folder: Path,
        model: ModelConfig,
        optim: OptimConfig,
        master_dtype: str,
        algorithm: AlgorithmConfig | None = None,
    ) -> "JobSize":
        """Compute the sizes from shapes.

        Args:
            folder: contains the model's config.json; weights are not needed.
            model: which parts are trained, and in which dtype the others are kept.
            optim: how moments are kept.
            master_dtype: as in `train.master_dtype`.
            algorithm: which other models there are; None for none.

        Raises:
            ConfigError: the model's configuration cannot be read.
        """
        import torch

        model_adapter = adapter_for(folder, model.adapter)
        trained = frozen = 0
        for name, parameter in load_on_meta(folder).named_parameters():
            if model.lora.rank or (model.freeze_vision and model_adapter.is_vision(name)):
                frozen += parameter.numel()
            else:
                trained += parameter.numel()
        itemsize = getattr(torch, model.dtype).itemsize
        base = 0.5 if model.lora.rank and model.lora.base == "nf4" else itemsize
        copies, references = 1, 0
        if algorithm is not None:
            requires = load_algorithm(algorithm).requirements()
            copies += sum(part is not None for part in (requires.critic, requires.implicit_reward))
            references = int(requires.reference)
        moments = copies * trained * _MOMENTS[optim.moments]
        weights = copies * (trained * _MASTER + math.ceil(frozen * base))
        return cls(
            model=(trained + frozen) * itemsize,
            state=weights + moments + references * (trained + frozen) * itemsize,
            moments=moments,
            gradients=copies * trained * getattr(torch, master_dtype).itemsize,
        )
