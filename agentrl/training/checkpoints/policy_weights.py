"""The policy's weights in a checkpoint, read one at a time."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from agentrl.config import LoraConfig
from agentrl.policies.models import load_on_meta
from agentrl.training.learner import four_bit_weights, learner_state, lora_adapters
from agentrl.training.learner.parallel import sharded_checkpoint


class PolicyWeights:
    """The policy's master weights in a checkpoint, named as in the model without adapters.

    Raises:
        ConfigError: the state is broken.
    """

    def __init__(self, state: Path, source: Path) -> None:
        self._reader = sharded_checkpoint.TensorReader(state, learner_state.POLICY)
        self._shapes = {name: p.shape for name, p in load_on_meta(source).named_parameters()}
        stored = self._reader.layout
        self._names = {
            plain: name
            for name in stored
            if not four_bit_weights.is_scale(name)
            and (plain := lora_adapters.base_name(name)) is not None
        }
        self.layout = {
            plain: torch.empty(self._shape(name), dtype=torch.float32, device="meta")
            if four_bit_weights.scale_name(name) in stored
            else stored[name]
            for plain, name in self._names.items()
        }
        """A meta tensor with each weight's shape and dtype, by name."""

    def base(self, plain: str) -> Tensor:
        """Return a weight without its adapter; a 4-bit weight is dequantized to float32."""
        return self._read([self._names[plain]])[self._names[plain]]

    def merged(self, plain: str, lora: LoraConfig) -> Tensor:
        """Return a weight with its adapter merged, if it has one."""
        name = self._names[plain]
        return lora_adapters.merge(self._read([name, *lora_adapters.adapter_names(name)]), lora)[
            plain
        ]

    def has_adapter(self, plain: str) -> bool:
        """Whether a weight has an adapter."""
        return lora_adapters.is_base_weight(self._names[plain])

    def adapters(self) -> dict[str, Tensor]:
        """Return the adapters' weights, by their names in the model with adapters."""
        return self._read([n for n in self._reader.layout if lora_adapters.base_name(n) is None])

    def _read(self, names: Sequence[str]) -> dict[str, Tensor]:
        scales = [four_bit_weights.scale_name(name) for name in names]
        stored = self._reader.read([n for n in (*names, *scales) if n in self._reader.layout])
        return four_bit_weights.dequantize_tensors(stored, self._shape)

    def _shape(self, name: str) -> Sequence[int]:
        """Return the shape of a weight before quantization."""
        return self._shapes[lora_adapters.base_name(name) or ""]
