"""A model that is sharded over ranks for training, and gathered for engines and files."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from agentrl.config import ModelConfig, TrainConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import ModelAdapter
from agentrl.policies.models.model_loading import SCORE
from agentrl.policies.models.stored_weights import WeightSlice, open_files, open_model
from agentrl.policies.models.weight_conversion import StoredForm
from agentrl.text.name_suggestions import did_you_mean
from agentrl.training.learner import (
    activation_offload,
    four_bit_weights,
    hf_folder_export,
    lora_adapters,
)
from agentrl.training.learner.attention import flex_attention
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.parallel import model_parallel, sequence_parallel
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.parallel.sharding import (
    gather_full,
    local_shard,
    reshard,
    shard,
    write_local_shard,
)
from agentrl.weight_sync import safetensors_files

_PREFIX = "policy."

S = TypeVar("S", bound=Backbone)

ModelOpener = Callable[..., tuple[nn.Module, Iterable[tuple[str, WeightSlice]]]]
"""Opens a model like `open_model`."""


class ShardedModel(Generic[S]):
    """A model sharded over the ranks.

    Args:
        wrap: class that wraps the loaded Hugging Face model, given the model and its adapter.
        train: precision, sharding and checksums.
        folder: the model to start from, in the Hugging Face format.
        frozen: True for a reference that is never trained.
        opened: opens the model and its weights.

    Raises:
        ConfigError: the model cannot be loaded.
    """

    def __init__(
        self,
        wrap: type[S],
        model_adapter: ModelAdapter,
        config: ModelConfig,
        train: TrainConfig,
        folder: Path,
        rank: Rank,
        *,
        seed: int,
        frozen: bool = False,
        opened: ModelOpener = open_model,
    ) -> None:
        self._folder, self._rank = folder, rank
        self._checked = train.check_weights
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        """Dtype of published weights."""
        self._lora = None if frozen or not config.lora.rank else config.lora
        # Load in the compute dtype, which decides whether flash-attn is used; master weights are
        # converted below.
        sliced = rank.slice is not None and config.attention == "auto"
        attention = "sdpa" if sliced else config.attention
        dtype, headless = config.dtype, wrap.headless
        policy, stored = opened(folder, dtype=dtype, attention=attention, headless=headless)
        model_adapter.prepare(policy)
        policy.requires_grad_(not frozen)
        # From here to `shard`, order matters, because each step changes the modules that the next
        # one uses.
        if config.freeze_vision:
            for name, parameter in policy.named_parameters():
                if model_adapter.is_vision(name):
                    parameter.requires_grad_(False)
        if self._lora is not None:
            lora_adapters.insert(policy, model_adapter, self._lora, seed)
        self.module = wrap(policy, model_adapter)
        self._prepare_attention(config.attention, train)
        loaded = {n: p.dtype for n, p in self.module.named_parameters(remove_duplicate=False)}
        self._prepare_training(train, recompute=train.gradient_checkpointing and not frozen)
        self.attention_break_even = self.module.attention_break_even()
        self.image_token_cost = self.module.image_token_cost()
        quantized = self._lora is not None and self._lora.base == "nf4"
        self._quantized = four_bit_weights.layers(self.module) if quantized else {}
        model_parallel.prepare(policy, model_adapter, rank.tensor_mesh, rank.expert_mesh)
        shard(
            self.module,
            self.module.layers(),
            self.module.parts(),
            rank,
            self.dtype,
            replicated=[self.module.get_parameter(name) for name in self._quantized],
            offload=train.offload,
        )
        self.remainders = {
            name: torch.zeros_like(local_shard(p).detach(), dtype=torch.int16)
            for name, p in self.module.named_parameters()
            if p.requires_grad and p.dtype == torch.bfloat16
        }
        """Lower bits (int16) of this rank's weight shards, by the weights' names in `module`;
        empty unless `train.master_dtype` is `bfloat16`. See `adamw.join`."""
        self._read(itertools.chain(stored, self._stored_score()), loaded)

    def _stored_score(self) -> Iterator[tuple[str, WeightSlice]]:
        """Yield a reward model's scalar head, which a language model's class does not read."""
        if SCORE in self._named() and (score := open_files(self._folder).get(SCORE)) is not None:
            yield SCORE, score

    def _prepare_attention(self, attention: str, train: TrainConfig) -> None:
        """Choose the decoder's attention: by blocks, over slices of rows, or the model's own."""
        self.module.uses_blocks = flex_attention.prepare(
            self.module.policy,
            attention,
            self._rank.device,
            shares_prefixes=train.share_prefixes,
        )
        self.module.slice = self._rank.slice
        if self._rank.slice is not None:
            sequence_parallel.prepare(self.module.policy, self._rank.slice.count)

    def _prepare_training(self, train: TrainConfig, *, recompute: bool) -> None:
        """Set the dtype of trained weights, gradient checkpointing and compilation."""
        master_dtype: torch.dtype = getattr(torch, train.master_dtype)
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(master_dtype)
        self.module.train(recompute)
        if recompute:
            policy = self.module.policy
            policy.gradient_checkpointing_enable({"use_reentrant": False})
            # Only reentrant checkpointing needs inputs with gradients, which would make a frozen
            # vision tower keep activations and run backward.
            policy.disable_input_require_grads()
            if train.activation_offload and self._rank.device.type != "cpu":
                activation_offload.enable(policy)
        if train.compile:
            _compile_layers(self.module)

    @torch.no_grad()
    def forward_only(self, *args: Any) -> Any:
        """Run a forward pass without gradient, and reshard the model."""
        found = self.module(*args)
        reshard(self.module)
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights that `iter_full_weights` yields, by name."""
        return {
            plain: four_bit_weights.full_shape(p)
            for name, p in self._named().items()
            if (plain := lora_adapters.base_name(name)) is not None
        }

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the full weights on this rank's device, in `model.dtype`, with merged adapters.

        A collective call: every rank must exhaust the iterator.
        """
        for plain, parts in self._with_adapters():
            yield plain, self._merged(parts, self.dtype)

    def _with_adapters(self) -> Iterator[tuple[str, dict[str, nn.Parameter]]]:
        """Yield each weight's name without adapters, and the weight with its adapter's, if any."""
        own = self._named()
        for name in own:
            if (plain := lora_adapters.base_name(name)) is not None:
                yield plain, {n: own[n] for n in (name, *lora_adapters.adapter_names(name))}

    def _merged(self, parts: Mapping[str, nn.Parameter], dtype: torch.dtype | None) -> Tensor:
        """Return a full weight with its adapter merged; a collective call.

        `dtype=None` keeps the dtype.
        """
        if len(parts) == 1:
            (weight,) = parts.values()
            return self._full(weight, dtype)
        assert self._lora is not None
        full = {name: self._full(part) for name, part in parts.items()}
        (tensor,) = lora_adapters.merge(full, self._lora).values()
        return tensor if dtype is None else tensor.to(dtype)

    def _full(self, parameter: nn.Parameter, dtype: torch.dtype | None = None) -> Tensor:
        """Return the full tensor on this rank's device; a collective call.

        May return the parameter itself.
        """
        if four_bit_weights.quant_state(parameter) is None:
            return gather_full(parameter, dtype).to(self._rank.device)
        full = four_bit_weights.dequantize(parameter).to(self._rank.device)
        return full if dtype is None else full.to(dtype)

    def _on_rank_0(
        self,
        weights: Iterator[tuple[str, Tensor]],
        write: Callable[[Iterator[tuple[str, Tensor]]], None],
    ) -> None:
        """Write weights that all ranks gather; a collective call even if writing fails."""
        try:
            if self._rank.number == 0:
                write(weights)
        finally:
            # Exhaust the iterator, because gathering a weight blocks until every rank takes part.
            for _ in weights:
                pass

    def _layout(self) -> dict[str, Tensor]:
        """Return the published weights on the meta device, by name."""
        return {
            name: torch.empty(shape, dtype=self.dtype, device="meta")
            for name, shape in self.shapes().items()
        }

    def save_base(self, path: Path) -> None:
        """Write the weights without their adapters; a collective call."""
        weights = (
            (plain, self._full(next(iter(parts.values())), self.dtype))
            for plain, parts in self._with_adapters()
        )
        self._write_stream(path, weights)

    def save_adapter(self, folder: Path) -> None:
        """Write the adapters alone, in PEFT's format; a collective call."""
        assert self._lora is not None, "it has adapters"
        own = {n: p for n, p in self._named().items() if lora_adapters.base_name(n) is None}
        full = {n: gather_full(p).cpu() for n, p in own.items()}
        if self._rank.number == 0:
            lora_adapters.write(folder, full, self._lora, str(self._folder), checked=self._checked)

    @torch.no_grad()
    def copy_from(self, other: "ShardedModel[Any]") -> None:
        """Copy the weights, including adapters, of a model that is sharded in the same way.

        Weights that only one of the models has are left alone.
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

    @torch.no_grad()
    def copy_merged(self, other: "ShardedModel[Any]") -> None:
        """Copy the weights of a model on the same ranks, merging its adapters; a collective call.

        Most weights are copied shard by shard; only weights with adapters are gathered, one at a
        time.
        """
        own = self._named()
        for plain, parts in other._with_adapters():
            if len(parts) == 1:
                (weight,) = parts.values()
                local_shard(own[plain]).copy_(local_shard(weight))
            else:
                write_local_shard(other._merged(parts, None), own[plain])
        for remainder in self.remainders.values():
            remainder.zero_()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the sharded master weights by name, sharing their memory."""
        found: dict[str, Tensor] = {}
        for name, p in self._named().items():
            plain = four_bit_weights.quant_state(p) is None
            found |= {name: p.detach()} if plain else four_bit_weights.state_tensors(name, p)
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return {name: tensor.cpu().clone() for name, tensor in self.iter_full_weights()}

    def save(self, path: Path) -> None:
        """Write the weights as a safetensors file, atomically; a collective call."""
        self._write_stream(path, self.iter_full_weights())

    def _write_stream(self, path: Path, weights: Iterator[tuple[str, Tensor]]) -> None:
        self._on_rank_0(
            weights,
            lambda w: safetensors_files.write_stream(
                path, self._layout(), w, checked=self._checked
            ),
        )

    def export(self, folder: Path) -> None:
        """Export the model atomically as a Hugging Face folder; all ranks must call it."""

        def write(weights: Iterator[tuple[str, Tensor]]) -> None:
            form = StoredForm(self._folder, self._layout())
            hf_folder_export.export(self._folder, folder, form.layout, form.convert(weights))

        self._on_rank_0(self.iter_full_weights(), write)

    def load(self, path: Path) -> None:
        """Read this rank's shards of weights that `save` or `export` wrote, and reset the adapters.

        Args:
            path: a safetensors file, or the folder of an exported model.

        Raises:
            ConfigError: the weights belong to a different model, or the file contains no weights.
        """
        files = open_files(path)
        found = {name: tuple(weight.get_shape()) for name, weight in files.items()}
        weights: Iterable[tuple[str, WeightSlice]] = files.items()
        folder = path if path.is_dir() else path.parent
        if not self.shapes().items() <= found.items() and (folder / "config.json").is_file():
            # An exported model's files use the Hub's names and shapes.
            model, weights = open_model(folder, headless=self.module.headless)
            found = {name: tuple(p.shape) for name, p in model.state_dict().items()}
        _check_shapes(self.shapes(), found)
        self._read(weights)
        # The loaded weights include merged adapters, so adapters start from zero again.
        for name, parameter in self._named().items():
            if lora_adapters.is_lora_b(name):
                local_shard(parameter).detach().zero_()
        for remainder in self.remainders.values():
            remainder.zero_()

    def _read(
        self,
        weights: Iterable[tuple[str, WeightSlice]],
        loaded: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        """Fill this rank's shards, holding one weight at a time.

        Args:
            weights: weights by their names without adapters; unknown names are ignored.
            loaded: dtype by parameter name, to convert each weight to before converting it to the
                parameter's dtype.
        """
        own = dict(self.module.named_parameters(remove_duplicate=False))
        names = {lora_adapters.base_name(n.removeprefix(_PREFIX)): n for n in own}
        for plain, weight in weights:
            if (name := names.get(plain)) is None:
                continue
            parameter = own[name]
            if (layer := self._quantized.get(name)) is None:
                write_local_shard(weight, parameter, loaded[name] if loaded else None)
            elif loaded is not None:
                four_bit_weights.quantize_into(
                    layer, weight[...].to(loaded[name]), self._rank.device
                )
            else:
                four_bit_weights.requantize_into(parameter, weight[...])

    def _named(self) -> dict[str, nn.Parameter]:
        return {n.removeprefix(_PREFIX): p for n, p in self.module.named_parameters()}


def _compile_layers(module: Backbone) -> None:
    """Compile each decoder layer, inside gradient checkpointing and FSDP's hooks."""
    # The compiler treats FSDP's modules specially: it would turn their integers, such as the head
    # size, into symbols, which FlexAttention's GPU kernel rejects.
    torch._dynamo.config.specialize_int = True
    for layer in module.layers():
        # All layers share one code object. It is compiled for each kind of layer and mask, with and
        # without gradient, and for batches of one row; sizes are symbols.
        compiled = torch.compile(layer.forward, dynamic=True, recompile_limit=64)  # type: ignore[call-overload]
        layer.forward = compiled


def _check_shapes(own: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]) -> None:
    for name, shape in own.items():
        if name not in found:
            raise ConfigError(
                f"these weights belong to a different model: {name} is missing"
                f"{did_you_mean(name, found)}"
            )
        if found[name] != shape:
            raise ConfigError(
                f"these weights belong to a different model: {name} has shape {found[name]}, "
                f"expected {shape}"
            )
