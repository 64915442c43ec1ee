"""Checks that a model can be loaded, sharded, adapted and trained as configured."""

import json
import logging
import os
import shutil
from importlib.util import find_spec

from agentrl import extras
from agentrl.config import (
    AlgorithmConfig,
    ModelConfig,
    OptimConfig,
    RolloutConfig,
    TrainConfig,
)
from agentrl.errors import ConfigError
from agentrl.policies.models.model_record import trained_image_sizes
from agentrl.policies.models.model_source import attention_heads, find_config
from agentrl.policies.open_engine import check_engine_for
from agentrl.weight_sync import transport_choice

log = logging.getLogger(__name__)


def check_model_with_engine(model: ModelConfig, rollout: RolloutConfig, *, learns: bool) -> None:
    """Check a local or Hub model, and that its engine can be used to train it."""
    folder = find_config(model)
    if learns:
        check_engine_for(model, folder, rollout, transport_choice.num_gpus(rollout))


def check_model_settings(
    model: ModelConfig,
    train: TrainConfig,
    optim: OptimConfig,
    rollout: RolloutConfig,
    *,
    learns: bool,
) -> None:
    """Check that the model can be sharded, adapted and compiled as configured."""
    _compare_image_sizes(model)
    if train.sequence_parallel > 1 and (heads := attention_heads(model)):
        from agentrl.training.learner.parallel import sequence_parallel

        sequence_parallel.check_heads(heads, train.sequence_parallel)
    if learns and max(train.tensor_parallel, train.expert_parallel) > 1:
        from agentrl.training.learner.parallel import model_parallel

        model_parallel.check_model(model, train.tensor_parallel, train.expert_parallel)
    if model.lora.rank:
        from agentrl.training.learner import lora_adapters

        lora_adapters.check(model)
    if learns and train.compile:
        _check_compiler(rollout)
    if learns and optim.moments == "8bit" and find_spec("bitsandbytes") is None:
        raise ConfigError(extras.NO_8BIT)


def _compare_image_sizes(model: ModelConfig) -> None:
    """Warn if a model was trained with a different image size."""
    for name, before in trained_image_sizes(model.path).items():
        now = getattr(model, name)
        if now != before:
            log.warning(
                "model.%s=%s, but %s was trained with %s",
                name, json.dumps(now), model.path, json.dumps(before),
            )  # fmt: skip


def check_attention(model: ModelConfig, rollout: RolloutConfig, *, learns: bool) -> None:
    """Check that the attention implementation is installed and supports device and precision."""
    if model.attention == "flex" and learns and transport_choice.num_gpus(rollout) == 0:
        raise ConfigError(
            "model.attention=flex: FlexAttention has no backward pass on the CPU, and this "
            "machine has no GPU; model.attention=auto uses SDPA instead"
        )
    if model.attention != "flash_attention_2":
        return
    # If `kernels` is installed instead, transformers downloads flash-attn's kernels from the Hub.
    if find_spec("flash_attn") is None and find_spec("kernels") is None:
        raise ConfigError(extras.NO_FLASH)
    if transport_choice.num_gpus(rollout) == 0:
        raise ConfigError(
            "model.attention=flash_attention_2 requires a GPU, but this machine has none; "
            "model.attention=auto uses SDPA instead"
        )
    if model.dtype == "float32":
        raise ConfigError(
            "model.attention=flash_attention_2 computes in half precision, but model.dtype=float32;"
            " set model.dtype=bfloat16 or model.attention=auto"
        )


def _check_compiler(rollout: RolloutConfig) -> None:
    """Check for the compilers that torch needs: C++ for the CPU, C to launch GPU kernels."""
    on_cpu = transport_choice.num_gpus(rollout) == 0
    variable, wanted = ("CXX", "g++") if on_cpu else ("CC", "gcc")
    compiler = os.environ.get(variable, wanted)
    if not shutil.which(compiler):
        raise ConfigError(
            f"train.compile=true: requires {compiler}, which is not installed; install it, set "
            f"{variable} to a different compiler, or set train.compile=false"
        )


def check_replay(settings: AlgorithmConfig, sampler: str) -> None:
    """Check that the probability ratio to the current policy weights tokens of old episodes.

    Raises:
        ConfigError: tokens of old episodes are not weighted, or are dropped.
    """
    if settings.importance_correction.kind != "none":
        return
    import torch

    from agentrl.algorithms.core.policy_loss import LossInputs, load_loss

    logprobs = torch.zeros(2, requires_grad=True)
    tokens = {"advantages": torch.ones(2), "turn": torch.tensor([0, 1])}
    old = torch.tensor([0.0, 0.1])  # within the clip range of any loss's token ratios
    loss = load_loss(settings.loss)(LossInputs(logprobs=logprobs, old_logprobs=old, **tokens)).loss
    (slope,) = torch.autograd.grad(loss.sum(), logprobs)
    if slope[0] == slope[1]:
        raise ConfigError(
            f"sampling.name={sampler}: algorithm.loss.name={settings.loss.name} does not weight "
            "tokens by their probability ratio, which old episodes need; set "
            "algorithm.importance_correction.kind=token_truncate, or another loss"
        )
