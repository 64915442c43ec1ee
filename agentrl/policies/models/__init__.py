"""Model loading, and adapters of model families, which turn images into tokens and tensors."""

from agentrl.policies.models.model_adapter import ModelAdapter
from agentrl.policies.models.model_loading import adapter_for, load_model, load_on_meta

__all__ = ["ModelAdapter", "adapter_for", "load_model", "load_on_meta"]
