"""Inputs of checkpointed layers in CPU memory until the backward pass needs them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from agentrl import accelerators

_CHECKPOINT = "_gradient_checkpointing_func"


def enable(policy: nn.Module) -> None:
    """Keep in CPU memory what gradient checkpointing keeps of each layer: its input.

    Args:
        policy: a Hugging Face model with gradient checkpointing enabled.
    """
    for module in policy.modules():
        if checkpoint := getattr(module, _CHECKPOINT, None):
            setattr(module, _CHECKPOINT, _on_cpu(checkpoint))


def _on_cpu(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    kind = accelerators.device().type

    def call(function: Callable[..., Any], *args: Any) -> Any:
        # Hooks of the checkpoint replace these within the layer: they see its inputs alone.
        with torch.autograd.graph.save_on_cpu(pin_memory=kind != "cpu", device_type=kind):
            return checkpoint(function, *args)

    return call
