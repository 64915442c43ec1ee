"""Keep inputs of checkpointed layers in CPU memory until the backward pass needs them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from agentrl import accelerators

_CHECKPOINT = "_gradient_checkpointing_func"


def enable(
    policy: nn.Module, keep: Callable[[], AbstractContextManager[Any]] | None = None
) -> None:
    """Move the layer inputs that gradient checkpointing keeps to CPU memory.

    Args:
        policy: a Hugging Face model with gradient checkpointing enabled.
        keep: returns the saved-tensor hooks that store the inputs elsewhere.
    """
    for module in policy.modules():
        if checkpoint := getattr(module, _CHECKPOINT, None):
            setattr(module, _CHECKPOINT, _keeping(checkpoint, keep or _on_cpu))


def _on_cpu() -> AbstractContextManager[Any]:
    kind = accelerators.device().type
    # Copies overlap with GPU work only if the CPU memory is page-locked.
    return torch.autograd.graph.save_on_cpu(pin_memory=kind != "cpu", device_type=kind)


def _keeping(
    checkpoint: Callable[..., Any], keep: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    def call(function: Callable[..., Any], *args: Any) -> Any:
        # The checkpoint's own hooks apply inside a layer, so these hooks see only its inputs.
        with keep():
            return checkpoint(function, *args)

    return call
