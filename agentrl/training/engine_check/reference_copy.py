"""A second copy of a model in transformers, with which an engine is compared without a learner."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl.cluster.machine_resources import host_memory
from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.open_encoder import open_encoder
from agentrl.training.engine_check.compared_prompts import ComparedPrompt
from agentrl.training.engine_check.engine_comparison import (
    EngineComparison,
    Generate,
    compare_engine,
)
from agentrl.types import Prompt, TokenPredictions, TokenSequence

if TYPE_CHECKING:
    from agentrl.policies.reference_model import ReferenceModel

log = logging.getLogger(__name__)

_MAX_COPY_BYTES = 8e9
"""Size in memory up to which a second copy of the model is loaded by default."""
_MEMORY_PER_COPY = 1.5
"""Free memory that a copy requires by default, as a multiple of its size: its forward passes need
some, too. An engine in CPU memory has loaded its own copy by then."""


class ReferenceCopy:
    """A second copy of the model in transformers, loaded when it is first needed.

    Args:
        folder: the model's folder.
        model: the model's settings.
        rollout: the engine's settings.

    Raises:
        ConfigError: the settings ask for the copy of a quantized model.
    """

    def __init__(self, folder: Path, model: ModelConfig, rollout: RolloutConfig) -> None:
        self._folder, self._model, self._rollout = folder, model, rollout
        if rollout.engine_check.enabled and _is_quantized(folder):
            raise ConfigError(
                f"rollout.engine_check.enabled=true: {folder} is quantized (quantization_config in "
                "its config.json), so transformers cannot compute its log-probabilities on the "
                "CPU; remove the setting, or use the model that is not quantized"
            )
        self.encoder = open_encoder(model, folder)
        self._loaded: ReferenceModel | None = None

    def is_wanted(self) -> bool:
        """Whether `rollout.engine_check` asks for a comparison with a second copy; blocks.

        Call this when the engine has started: its memory is not free.
        """
        enabled = self._rollout.engine_check.enabled
        if enabled is not None:
            return enabled
        if _is_quantized(self._folder):
            log.warning(
                "the engine is not compared with transformers, because the model is quantized"
            )
            return False
        size, free = _copy_bytes(self._folder, self._model.dtype), host_memory().free
        if size <= _MAX_COPY_BYTES and size * _MEMORY_PER_COPY <= free:
            return True
        log.warning(
            "the engine is not compared with transformers, which would load another %.0f GB into "
            "CPU memory (%.0f GB are free); rollout.engine_check.enabled=true compares them",
            size / 1e9,
            free / 1e9,
        )
        return False

    async def compare(
        self, prompts: Sequence[ComparedPrompt], generate: Generate
    ) -> EngineComparison:
        """See `compare_engine`."""
        try:
            return await compare_engine(
                prompts,
                self.encoder,
                generate,
                self._predict,
                rollout=self._rollout,
                dtype=self._model.dtype,
            )
        finally:
            self._loaded = None

    async def _predict(self, sequences: Sequence[TokenSequence]) -> list[TokenPredictions]:
        # Imported late: this loads torch, which takes seconds.
        from agentrl.policies.reference_model import ReferenceModel

        def predict() -> list[TokenPredictions]:
            model = self._loaded = self._loaded or ReferenceModel(
                self._folder, self.encoder, self._model.dtype
            )
            return [
                model.predict(*_split(one), temperature=self._rollout.temperature)
                for one in sequences
            ]

        return await asyncio.to_thread(predict)


def _is_quantized(folder: Path) -> bool:
    """Whether a checkpoint's weights are quantized, such as by AWQ or to FP8."""
    config = read_json(folder / "config.json")
    return any("quantization_config" in part for part in (config, config.get("text_config") or {}))


def _copy_bytes(folder: Path, dtype: str) -> int:
    """Return the size of a model's weights in memory, in a dtype that may not be its files'."""
    # Imported late: this loads torch, which takes seconds.
    import torch

    from agentrl.policies.models import load_on_meta

    count = sum(weight.numel() for weight in load_on_meta(folder).parameters())
    of_one: torch.dtype = getattr(torch, dtype)
    return count * of_one.itemsize


def _split(sequence: TokenSequence) -> tuple[Prompt, tuple[int, ...]]:
    start = sequence.sampled_positions[0]
    prompt = Prompt(token_ids=sequence.token_ids[:start], images=sequence.images)
    return prompt, sequence.token_ids[start:]
