"""Adapters of model families: how images become tokens and tensors."""

from agentrl.policies.models.model_adapter import ModelAdapter
from agentrl.policies.models.model_loading import adapter_for, load_model, load_on_meta

__all__ = ["ModelAdapter", "adapter_for", "load_model", "load_on_meta"]
