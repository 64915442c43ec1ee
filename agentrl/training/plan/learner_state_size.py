"""Sizes of a job's weights and learner state, computed from the model's configuration alone."""

import math
from dataclasses import dataclass
from pathlib import Path

from agentrl.algorithms.core.algorithm import SELF
from agentrl.policies.models import adapter_for, load_on_meta
from agentrl.training.learner.learner_settings import LearnerSettings

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
    teacher: int
    """Size of a teacher's weights, which are not part of the state; 0 without one."""

    @classmethod
    def of(
        cls,
        folder: Path,
        learner: LearnerSettings,
        teacher: Path | None = None,
    ) -> "LearnerStateSize":
        """Compute the sizes from the shapes in a folder with the model's config.json.

        Args:
            folder: the model's folder.
            learner: settings of the learner.
            teacher: folder of the teacher's model; None if it is the model in `folder`.

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
        teacher_size = 0
        if requires.teacher not in (None, SELF):
            weights_of = load_on_meta(teacher or folder).parameters()
            teacher_size = sum(weight.numel() for weight in weights_of) * itemsize
        moments = copies * trained * _MOMENTS[learner.optim.moments]
        weights = copies * (trained * _MASTER + math.ceil(frozen * base))
        return cls(
            model=(trained + frozen) * itemsize,
            state=weights + moments + references * (trained + frozen) * itemsize,
            moments=moments,
            gradients=copies * trained * getattr(torch, learner.train.master_dtype).itemsize,
            teacher=teacher_size,
        )
