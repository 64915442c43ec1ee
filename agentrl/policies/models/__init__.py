"""Adapters of model families: how images become tokens and tensors."""

from agentrl.policies.models.model_adapter import Kit, kit_for, load_model, skeleton

__all__ = ["Kit", "kit_for", "load_model", "skeleton"]
