"""Tensor and expert parallelism, using transformers' plans for model families.

A plan names a style for each kind of module: `colwise` gives a rank some of a layer's outputs,
`rowwise` some of its inputs. transformers implements the styles and the dispatch of tokens to
experts (`transformers.distributed.tensor_parallel`); this package implements FSDP, loading and
checkpoints, which work on DTensors.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from agentrl.config import ModelConfig
from agentrl.errors import ConfigError, boundary
from agentrl.policies.models import ModelAdapter, adapter_for, load_on_meta
from agentrl.policies.models.model_source import is_on_hub, resolve_model

_LAYER = ".layers.*."
_HEAD_NORMS = "replicated_with_grad_allreduce"
"""Style of per-head norms: replicated on all ranks, which add up the gradients of their heads."""


def prepare(
    policy: nn.Module,
    model_adapter: ModelAdapter,
    tensor: DeviceMesh | None,
    experts: DeviceMesh | None,
) -> None:
    """Divide the decoder of a Hugging Face model over ranks, in place.

    Args:
        policy: the model. Parameters may be on the meta device; divided ones become DTensors.
        model_adapter: adapter of the model's family.
        tensor: [T] the ranks that share decoder layers; None if none do.
        experts: [E] the ranks that share experts; None if none do.

    Raises:
        ConfigError: see `check`.
    """
    from transformers.distributed.tensor_parallel import apply_expert_parallelism

    num_experts = experts.size() if experts is not None else 1
    check(policy, model_adapter, tensor.size() if tensor is not None else 1, num_experts)
    if tensor is not None:
        with boundary(ConfigError, f"train.tensor_parallel={tensor.size()}"):
            _apply(policy, _tensor_plan(policy, model_adapter), tensor)
    if experts is not None:
        model: Any = policy
        with boundary(ConfigError, f"train.expert_parallel={num_experts}"):
            apply_expert_parallelism(policy, experts, tensor, model.ep_plan)


def check_model(model: ModelConfig, tensor: int, experts: int) -> None:
    """Call `check` on a configured model; does not download models from the Hub."""
    if is_on_hub(model):
        return
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = resolve_model(model, 0, Path(scratch) / "tiny")
        check(load_on_meta(folder), adapter_for(folder, model.adapter), tensor, experts)


def check(policy: nn.Module, model_adapter: ModelAdapter, tensor: int, experts: int) -> None:
    """Check that a model can be divided; it may be on the meta device.

    Raises:
        ConfigError: transformers has no plan for the model family, or the model's sizes cannot be
            divided.
    """
    model: Any = policy
    settings = model.config.get_text_config()
    family = f"models of the family {settings.model_type!r}"
    if experts > 1:
        # Without this style, ranks that share experts would have to compute the same rows.
        if "ep_dispatch_experts" not in model.ep_plan.values():
            raise ConfigError(
                f"train.expert_parallel={experts}: transformers has no plan for the experts of "
                f"{family}; set train.expert_parallel=1"
            )
        # Some families, such as Mixtral, use the other name.
        count = getattr(settings, "num_experts", None) or settings.num_local_experts
        _check_divides("train.expert_parallel", experts, count, "experts")
    if tensor == 1:
        return
    plan = _tensor_plan(policy, model_adapter)
    # Plans that name parameters divide expert matrices, which `_apply` does not support.
    if not plan or plan.keys() & {_kind(name) for name, _ in policy.named_parameters()}:
        raise ConfigError(
            f"train.tensor_parallel={tensor}: transformers has no plan for {family}; set "
            "train.tensor_parallel=1"
        )
    if model.ep_plan and experts == 1:
        raise ConfigError(
            f"train.tensor_parallel={tensor}: tensor parallelism does not divide the experts of "
            f"{family}; set train.expert_parallel to {tensor} or a multiple of it"
        )
    _check_divides("train.tensor_parallel", tensor, settings.num_attention_heads, "attention heads")
    _check_divides("train.tensor_parallel", tensor, settings.num_key_value_heads, "key-value heads")
    _check_divides(
        "train.tensor_parallel", tensor, settings.intermediate_size, "intermediate features"
    )


def _check_divides(key: str, value: int, count: int, what: str) -> None:
    if count % value:
        raise ConfigError(f"{key}={value} must divide the model's {count} {what}")


def _tensor_plan(policy: nn.Module, model_adapter: ModelAdapter) -> dict[str, str]:
    """Map each kind of module, named with `*` for numbers, to its style; empty without a plan."""
    model: Any = policy
    # Do not divide the output head, which may be tied and computes only sampled positions.
    plan = {n: style for n, style in model_adapter.tensor_plan(policy).items() if _LAYER in f".{n}"}
    experts = tuple(model.ep_plan)
    plan = {name: style for name, style in plan.items() if not name.startswith(experts)}
    names = {_kind(name) for name, _ in policy.named_modules()}
    for name in [name for name in plan if name.endswith(".q_proj")]:
        # transformers 5.19 leaves these norms out for Qwen3-VL-MoE.
        for norm in ("q_norm", "k_norm"):
            if (found := name.removesuffix("q_proj") + norm) in names:
                plan.setdefault(found, _HEAD_NORMS)
    return plan


def _kind(name: str) -> str:
    from transformers.distributed.tensor_parallel import replace_layer_number_by_wildcard

    found: str = replace_layer_number_by_wildcard(name)
    return found


def _apply(policy: nn.Module, plan: dict[str, str], mesh: DeviceMesh) -> None:
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    for name, module in list(policy.named_modules()):
        if (named := plan.get(_kind(name))) is None:
            continue
        style = ALL_PARALLEL_STYLES[named]
        for part in _parts(module, named):
            for own, _ in list(part.named_parameters(recurse=False)):
                style.validate_param(part, own, mesh, parameter_name=f"{name}.{own}")
                style.shard_param(part, own, mesh)
            style.install_forward(part, mesh)


def _parts(module: nn.Module, style: str) -> Iterator[nn.Module]:
    """Yield the layers that a module's style applies to; a layer with an adapter has several."""
    if not hasattr(module, "base_layer"):
        yield module
        return
    adapted: Any = module
    yield adapted.base_layer
    # The adapter's other matrix is replicated, because the dimension that would be
    # divided is the adapter's rank.
    yield (adapted.lora_B if style.startswith("colwise") else adapted.lora_A)["default"]
