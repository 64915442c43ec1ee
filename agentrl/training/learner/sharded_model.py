"""A model sharded over the ranks for training, and gathered for engines and files."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from agentrl.config import ModelConfig, TrainConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import ModelAdapter, load_model
from agentrl.policies.models.stored_names import exported
from agentrl.text import did_you_mean
from agentrl.training.learner import (
    activation_offload,
    lora_adapters,
    qlora,
    sequence_parallel,
)
from agentrl.training.learner.backbone import Backbone
from agentrl.training.learner.process_group import Rank
from agentrl.training.learner.sharding import (
    as_dtensor,
    gather_full,
    local_shard,
    reshard,
    shard,
    write_local_shard,
)
from agentrl.weight_sync import weight_files

_PREFIX = "policy."

S = TypeVar("S", bound=Backbone)


class ShardedModel(Generic[S]):
    """A model sharded over the ranks.

    Args:
        wrap: wraps the loaded Hugging Face model in the module to call, given its adapter.
        model_adapter: adapter of the model's family.
        config: model settings.
        train: precision, sharding and checksums.
        folder: the model to start from, in the Hugging Face format.
        rank: process group and device of this rank.
        seed: random seed of initial adapter weights.
        frozen: True for a reference that is never trained.

    Raises:
        ConfigError: it cannot be loaded.
    """

    def __init__(
        self,
        wrap: Callable[[nn.Module, ModelAdapter], S],
        model_adapter: ModelAdapter,
        config: ModelConfig,
        train: TrainConfig,
        folder: Path,
        rank: Rank,
        *,
        seed: int,
        frozen: bool = False,
    ) -> None:
        self._folder, self._adapter = folder, model_adapter
        self._rank = rank
        self._checked = train.check_weights
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self._lora = None if frozen or not config.lora.rank else config.lora
        # Loaded in the compute dtype, which decides whether flash-attn is used; master weights are
        # converted below.
        attention = config.attention
        if rank.slice is not None and attention == "auto":
            attention = "sdpa"
        policy = load_model(
            folder, model_adapter=model_adapter, dtype=config.dtype, attention=attention
        )
        if rank.slice is not None:
            sequence_parallel.prepare(policy, rank.slice.count)
        policy.requires_grad_(not frozen)
        if config.freeze_vision:
            for name, parameter in policy.named_parameters():
                if model_adapter.is_vision(name):
                    parameter.requires_grad_(False)
        if self._lora is not None:
            lora_adapters.insert(policy, model_adapter, self._lora, seed)
        self.module = wrap(policy.to(rank.device), model_adapter)
        self.module.slice = rank.slice
        master_dtype: torch.dtype = getattr(torch, train.master_dtype)
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(master_dtype)
        checkpointing = train.gradient_checkpointing and not frozen
        self.module.train(checkpointing)
        if checkpointing:
            policy.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
            if train.activation_offload and rank.device.type != "cpu":
                activation_offload.enable(policy)
        self.attention_break_even = self.module.attention_break_even()
        self.image_token_cost = self.module.image_token_cost()
        shard(self.module, self.module.layers(), rank, self._dtype, offload=train.offload)
        self.remainders = {
            name: torch.zeros_like(local_shard(p).detach(), dtype=torch.int16)
            for name, p in self.module.named_parameters()
            if p.requires_grad and p.dtype == torch.bfloat16
        }
        """int16 the lower bits of this rank's shards of the weights, by their names in `module`;
        empty unless `train.master_dtype` is `bfloat16`. See `compact_adamw.join`."""

    @torch.no_grad()
    def forward_only(self, *args: Any) -> Any:
        """A forward pass without gradient, after which the model is sharded as before."""
        found = self.module(*args)
        reshard(self.module)
        return found

    def master_weights(self) -> dict[str, Tensor]:
        """The full master weights by name, on the CPU, adapters merged; a collective call."""
        full = self._full()
        return full if self._lora is None else lora_adapters.merge(full, self._lora)

    def _full(self) -> dict[str, Tensor]:
        return {
            n: gather_full(local_shard(p), p)
            if qlora.quant_state(p) is None
            else qlora.dequantize(p)
            for n, p in self._named().items()
        }

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of published weights."""
        return self._dtype

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights that `iter_full_weights` yields, by name."""
        return {
            plain: qlora.full_shape(p)
            for name, p in self._named().items()
            if (plain := lora_adapters.base_name(name)) is not None
        }

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The full weights one by one, on this rank's device, in `model.dtype`, adapters merged.

        A collective call: every rank must exhaust the iterator.
        """
        own = self._named()
        for name in own:
            if lora_adapters.base_name(name) is None:
                continue
            parts = {
                n: self._full_tensor(own[n])
                for n in (name, *lora_adapters.adapter_names(name))
                if n in own
            }
            one = parts if self._lora is None else lora_adapters.merge(parts, self._lora)
            ((plain, tensor),) = one.items()
            yield plain, tensor.to(self._dtype)

    @torch.no_grad()
    def _full_tensor(self, parameter: nn.Parameter) -> Tensor:
        """The full tensor on this rank's device, maybe the parameter itself; a collective call."""
        if qlora.quant_state(parameter) is not None:
            return qlora.dequantize(parameter).to(self._rank.device)
        found = as_dtensor(local_shard(parameter).detach(), parameter)
        whole = found.full_tensor() if isinstance(found, DTensor) else found
        return whole.to(self._rank.device)

    def save_base(self, path: Path) -> None:
        """Write the weights without their adapters; a collective call."""
        full = {n: t for name, t in self._full().items() if (n := lora_adapters.base_name(name))}
        if self._rank.number == 0:
            plain = {name: tensor.to(self._dtype) for name, tensor in full.items()}
            weight_files.write(path, plain, checked=self._checked)

    def save_adapter(self, folder: Path) -> None:
        """Write the adapters alone, in PEFT's format; a collective call."""
        assert self._lora is not None, "it has adapters"
        own = {n: p for n, p in self._named().items() if lora_adapters.base_name(n) is None}
        full = {n: gather_full(local_shard(p), p) for n, p in own.items()}
        if self._rank.number == 0:
            lora_adapters.write(folder, full, self._lora, str(self._folder), checked=self._checked)

    def load_full_weights(self, full: Mapping[str, Tensor]) -> None:
        """Replace the weights by full ones, given on every rank, and reset the adapters to zero.

        Raises:
            ConfigError: they belong to another model.
        """
        own = self._named()
        plain = {
            n: p for name, p in own.items() if (n := lora_adapters.base_name(name)) is not None
        }
        _check_shapes({name: qlora.full_shape(p) for name, p in plain.items()}, full)
        for name, parameter in plain.items():
            if qlora.quant_state(parameter) is None:
                write_local_shard(full[name], local_shard(parameter), parameter)
            else:
                qlora.requantize_into(parameter, full[name])
        for name, parameter in own.items():
            if lora_adapters.is_lora_b(name):
                local_shard(parameter).detach().zero_()
        for remainder in self.remainders.values():
            remainder.zero_()

    @torch.no_grad()
    def copy_from(self, other: "ShardedModel[Any]") -> None:
        """Copy the weights, adapters included, of a model that is sharded in the same way.

        Weights that only one of the two models has are left alone.
        """
        theirs = other.state_tensors()
        for name, tensor in self.state_tensors().items():
            if name in theirs:
                local_shard(tensor).copy_(local_shard(theirs[name]))
        for name, remainder in self.remainders.items():
            if name in other.remainders:
                remainder.copy_(other.remainders[name])
            elif name.removeprefix(_PREFIX) in theirs:
                remainder.zero_()

    def state_tensors(self) -> dict[str, Tensor]:
        """The sharded master weights by name, sharing their memory."""
        found: dict[str, Tensor] = {}
        for name, p in self._named().items():
            plain = qlora.quant_state(p) is None
            found |= {name: p.detach()} if plain else qlora.state_tensors(name, p)
        return found

    def weights(self) -> dict[str, Tensor]:
        """The full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return {name: tensor.to(self._dtype) for name, tensor in self.master_weights().items()}

    def save(self, path: Path) -> None:
        """Write the weights as a safetensors file, atomically; a collective call."""
        full = self.weights()
        if self._rank.number == 0:
            weight_files.write(path, full, checked=self._checked)

    def load(self, path: Path) -> None:
        """Read weights that `save` wrote.

        Raises:
            ConfigError: they belong to another model, or the file holds no weights.
        """
        full = weight_files.read(path)
        found = {name: tuple(tensor.shape) for name, tensor in full.items()}
        fits = self.shapes().items() <= found.items()
        if not fits and (path.parent / "config.json").is_file():
            # An exported model, whose file has the names and shapes of the Hub.
            full = dict(load_model(path.parent, model_adapter=self._adapter).state_dict())
        self.load_full_weights(full)

    def export(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder, atomically; a collective call."""
        full = self.weights()
        if self._rank.number == 0:
            weight_files.export(self._folder, folder, exported(self._folder, full))

    def _named(self) -> dict[str, nn.Parameter]:
        return {n.removeprefix(_PREFIX): p for n, p in self.module.named_parameters()}


def _check_shapes(own: Mapping[str, tuple[int, ...]], full: Mapping[str, Tensor]) -> None:
    for name, shape in own.items():
        if name not in full:
            raise ConfigError(
                f"these weights belong to another model: {name} is missing"
                f"{did_you_mean(name, full)}"
            )
        if tuple(full[name].shape) != shape:
            raise ConfigError(
                f"these weights belong to another model: {name} has shape "
                f"{tuple(full[name].shape)}, the model's is {shape}"
            )
