"""Export the model of a run's checkpoint: whole, as for `agentrl merge`, or its adapters alone."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from agentrl.config import LoraConfig, ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import load_on_meta
from agentrl.policies.models.gguf_conversion import is_gguf
from agentrl.policies.models.model_record import record_image_sizes
from agentrl.policies.models.model_source import resolve_model
from agentrl.policies.models.stored_weights import open_model
from agentrl.policies.models.weight_conversion import StoredForm
from agentrl.runs.run_folder import MODEL_STEP, RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.command_target import open_target
from agentrl.training.learner import (
    four_bit_weights,
    hf_folder_export,
    learner_state,
    lora_adapters,
)
from agentrl.training.learner.parallel import sharded_checkpoint


def export_checkpoint(
    run: Path, out: Path, name: str | None = None, dtype: str | None = None, adapter: bool = False
) -> int:
    """Export the model of a run's checkpoint as an ordinary Hugging Face folder.

    Args:
        run: the run's folder.
        out: the folder to write; it appears only once complete.
        name: `best`, `last` or a step; None takes the final model's checkpoint.
        dtype: dtype of the written weights; None takes the run's `model.dtype`.
        adapter: write only the adapters (`model.lora`), for PEFT and vLLM.

    Returns:
        The training step of the checkpoint.

    Raises:
        ConfigError: there is no such run or checkpoint, the checkpoint belongs to a different model
            or is damaged, or it has no adapters.
    """
    RunFolder.existing(run)
    config = open_target(run).config
    if adapter and RunFolder(run).command == "agentrl train-reward-model":
        raise ConfigError(
            f"{run}: the adapters do not include the reward model's head; leave out --adapter"
        )
    if adapter and not config.model.lora.rank:
        raise ConfigError(
            f"{run}: this model has no adapters (model.lora.rank=0); leave out --adapter"
        )
    # Use the final model's checkpoint, which after an early stop is the best, not the last.
    if name is None:
        name = str((RunFolder(run).final_summary() or {}).get(MODEL_STEP, "last"))
    kept = checkpoint_store.by_name(run, name)
    start = run / "start"
    try:
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            # The run started from a folder or a Hub model.
            if not start.is_dir():
                start = resolve_model(config.model, config.seed, Path(scratch) / "start")
            checkpoint_store.check(kept, start, config.model.lora)
            out.parent.mkdir(parents=True, exist_ok=True)
            if adapter:
                export_adapters(kept, start, out, config.model)
            else:
                dtype = dtype or config.model.dtype
                export_model(kept, start, out, dtype, config.model.lora)
                record_image_sizes(out, config.model)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    return checkpoint_store.step_of(kept)


def export_model(
    checkpoint: Path, source: Path, folder: Path, dtype: str, lora: LoraConfig
) -> None:
    """Export a checkpoint as an ordinary Hugging Face folder.

    Raises:
        ConfigError: the checkpoint is broken.
    """
    policy = _PolicyWeights(checkpoint_store.learner_state_of(checkpoint), source)
    to: torch.dtype = getattr(torch, dtype)
    form = StoredForm(source, {n: like.to(to) for n, like in policy.layout.items()})
    weights = ((name, policy.merged(name, lora).to(to)) for name in policy.layout)
    hf_folder_export.export(source, folder, form.layout, form.convert(weights))


def export_adapters(checkpoint: Path, source: Path, folder: Path, model: ModelConfig) -> None:
    """Export only the adapters of a checkpoint, in PEFT's format.

    Raises:
        ConfigError: the checkpoint is broken, or the run has changed more than the adapters.
    """
    policy = _PolicyWeights(checkpoint_store.learner_state_of(checkpoint), source)
    for name, weight in open_model(source)[1]:
        if name not in policy.layout:
            continue
        # PEFT adds the adapters to the original model, so the base weights must be unchanged.
        tensor, first = policy.base(name), weight[...]
        if model.lora.base == "nf4" and policy.has_adapter(name):
            first = four_bit_weights.quantize_roundtrip(first.to(getattr(torch, model.dtype)))
        if not first.to(tensor.dtype).equal(tensor):
            raise ConfigError(
                "this run has changed more than its adapters: its warm start was merged into the "
                "base weights (warm_start.cache). Leave out --adapter"
            )
    base = str(source.absolute()) if model.path == "tiny" or is_gguf(model.path) else model.path
    lora_adapters.write(folder, policy.adapters(), model.lora, base)


class _PolicyWeights:
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
