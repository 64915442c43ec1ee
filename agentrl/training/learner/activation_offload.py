"""Inputs of checkpointed layers in CPU memory until the backward pass needs them."""

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
    """Keep in CPU memory what gradient checkpointing keeps of each layer: its input.

    Args:
        policy: a Hugging Face model with gradient checkpointing enabled.
        keep: hooks that keep the inputs elsewhere.
    """
    for module in policy.modules():
        if checkpoint := getattr(module, _CHECKPOINT, None):
            setattr(module, _CHECKPOINT, _keeping(checkpoint, keep or _on_cpu))


def _on_cpu() -> AbstractContextManager[Any]:
    kind = accelerators.device().type
    # Only from and to page-locked memory do copies run while the GPU computes.
    return torch.autograd.graph.save_on_cpu(pin_memory=kind != "cpu", device_type=kind)


def _keeping(
    checkpoint: Callable[..., Any], keep: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    def call(function: Callable[..., Any], *args: Any) -> Any:
        # Hooks of the checkpoint replace these within the layer: they see its inputs alone.
        with keep():
            return checkpoint(function, *args)

    return call
