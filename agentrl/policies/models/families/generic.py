"""Adapter for all other models, based on their own configuration and processor."""

from __future__ import annotations

from pathlib import Path

from agentrl.policies.models.model_adapter import ModelAdapter, read_json
from agentrl.policies.models.processor_adapter import ProcessorAdapter


class Generic(ModelAdapter):
    """Uses the model's processor for images and transformers' usual names of submodules."""

    @classmethod
    def read(cls, path: Path) -> ModelAdapter:
        """Open the adapter for the model in a folder."""
        config = read_json(path / "config.json")
        has_vision = "vision_config" in config
        found = ProcessorAdapter(path) if has_vision else cls()
        assumed = " and the usual names of vision modules" if has_vision else ""
        found.notes = (
            f"no adapter lists model_type {config.get('model_type')!r}; assuming causal "
            f"attention{assumed}",
        )
        return found
