"""Measures the memory of a rank by running the learner's own code on tensors without values.

Models are built and sharded as in a job, but under torch's `FakeTensorMode` and with a process
group that does not communicate; torch's `FSDPMemTracker` counts memory. No weights are needed.
"""

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from agentrl import accelerators
from agentrl.policies.models import ModelAdapter, adapter_for, load_on_meta
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_loading import load_headers
from agentrl.training.batching import collate, prefix_tree
from agentrl.training.learner import activation_offload, four_bit_weights, lora_adapters
from agentrl.training.learner.adamw import REMAINDER
from agentrl.training.learner.learner_models import LearnerModels
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel import process_group
from agentrl.training.learner.parallel.process_group import Parallelism
from agentrl.training.learner.parallel.sharding import local_shard
from agentrl.types import Batch, TokenSequence

_SCREEN = (1280, 720)
"""Height and width of screenshots, before they are scaled for the model."""
_PROMPT = 200
"""Number of tokens in the instructions."""
_FEWEST_LAYERS = 4
"""Number of decoder layers of the smallest model that is run. With fewer, a 7B model's images take
more memory than the layers and hide how the decoder's memory grows."""
_AGREE = 0.005
"""Maximum relative difference between the peaks extrapolated from different models."""
_GATHERED = ("Unsharded Param", "All Gather")
_REDUCED = ("Unsharded Grad", "Reduce Scatter")
_INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default)
_STATIC = ("Sharded Param", "Sharded Grad", "Total")


@dataclass(slots=True, kw_only=True, frozen=True)
class RankMemory:
    """Memory of a rank in bytes, all of it on the GPU if nothing is offloaded."""

    weights: float
    """The rank's shards of the policy; trained weights in `train.master_dtype`."""
    replicated: float
    """4-bit weights, of which every rank has a complete copy."""
    remainders: float
    """Lower bits of bfloat16 weights."""
    moments: float
    gradients: float
    reference: float
    """The frozen models: a copy of the policy, and a teacher; 0 without either."""
    other_models: float
    """Critic and implicit reward model, with their optimizers."""
    gathered: float
    """Gathered weights of the FSDP units in use, at the peak of a pass."""
    reduced: float
    """Unsharded gradients being summed over ranks, at the peak."""
    activations: float
    """Everything else at the peak: activations, logits, images and temporary tensors."""
    kept_on_cpu: float
    """Layer inputs in CPU memory, with `train.activation_offload`."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Measured:
    static: dict[str, float]
    """The fields of `RankMemory` that exist before a pass, and `kept_on_cpu`."""
    peaks: list[dict[str, float]]
    """The other fields of `RankMemory` at the peak of each phase (`_end_phases`). Which phase
    has the highest peak depends on the number of layers, but each peak grows linearly with it."""

    def extrapolated(self, steps: float, fewer: "_Measured | None" = None) -> RankMemory:
        """Return the memory of a model with more layers, adding the difference `steps` times."""
        static, *peaks = _more(self, fewer or self, steps)
        return RankMemory(**static, **max(peaks, key=lambda peak: sum(peak.values())))

    def agrees(self, steps: float, fewer: "_Measured", fewest: "_Measured") -> bool:
        """Return whether extrapolations from the larger two and the smaller two models agree.

        The number of layers decreases by the same amount from this model to `fewer` and to
        `fewest`.
        """
        if not len(self.peaks) == len(fewer.peaks) == len(fewest.peaks):
            return False
        found, before = _more(self, fewer, steps), _more(fewer, fewest, steps + 1)
        allowed = _AGREE * max(sum(peak.values()) for peak in found)
        pairs = zip(found, before, strict=True)
        return all(abs(size - was[n]) <= allowed for own, was in pairs for n, size in own.items())


def _more(more: _Measured, fewer: _Measured, steps: float) -> list[dict[str, float]]:
    """Extrapolate static memory and peaks by a multiple of the difference between two models."""
    pairs = zip([more.static, *more.peaks], [fewer.static, *fewer.peaks], strict=True)
    return [{n: size + steps * (size - less[n]) for n, size in own.items()} for own, less in pairs]


def _with_layers(folder: Path, scratch: Path, layers: int) -> Path:
    """Copy a model's configuration with fewer decoder layers."""
    found = scratch / str(layers)
    shutil.copytree(folder, found, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    config = read_json(found / "config.json")
    text = config.get("text_config", config)
    text["num_hidden_layers"] = layers
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"][:layers]
    (found / "config.json").write_text(json.dumps(config))
    return found


class MemorySimulation:
    """Runs a pass of rank 0, at the peak of an optimizer step with several passes.

    Micro-batches are filled with sequences of `rollout.max_context` tokens, each with as many turns
    (a screenshot and a reply of `rollout.max_new_tokens`) as fit. If a model's decoder layers are
    all equal, only a few are run: three models whose numbers of layers differ by the same amount,
    which increase until both differences agree. The remaining layers are extrapolated. Routers give
    all experts the same number of tokens.

    Args:
        settings: the learner's settings. The caller accounts for offloaded weights or moments. With
            `model.lora.base=nf4`, passes run on bfloat16 weights, which take more memory.
        world_size: number of ranks.
        report: receives a line about each model before it is run.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        world_size: int,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings, self._world_size, self._report = settings, world_size, report
        self._teacher: Path | None = None

    def run(self, folder: Path, teacher: Path | None = None) -> RankMemory:
        """Measure a rank of the model in a folder, which need not contain weights.

        Args:
            folder: the model's folder.
            teacher: folder of the teacher, if the algorithm requires one; None takes the model.

        Raises:
            ConfigError: the model cannot be built, or cannot be sharded as configured.
        """
        self._teacher = teacher
        model_adapter = adapter_for(folder, self._settings.model.adapter)
        shapes = [
            [tuple(p.shape) for p in block.parameters()]
            for block in model_adapter.blocks(load_on_meta(folder))
        ]
        total, few, step = len(shapes), _FEWEST_LAYERS, 1
        if any(own != shapes[0] for own in shapes):
            return self._run_whole(folder, total)
        while few + 2 * step < total:
            fewest, fewer, more = (self._run_few(folder, few + k * step, total) for k in range(3))
            steps = (total - few) / step - 2
            if more.agrees(steps, fewer, fewest):
                return more.extrapolated(steps, fewer)
            few, step = 2 * few, 2 * step
        return self._run_whole(folder, total)

    def _run_whole(self, folder: Path, total: int) -> RankMemory:
        self._report(f"running all {total} layers")
        return self._measure(folder).extrapolated(0.0)

    def _run_few(self, folder: Path, layers: int, total: int) -> _Measured:
        self._report(f"running {layers} of {total} layers")
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            return self._measure(_with_layers(folder, Path(scratch), layers))

    def _measure(self, folder: Path) -> _Measured:
        changed = deepcopy(self._settings)
        changed.train.offload = changed.train.activation_offload = False
        changed.optim.offload_moments = False
        changed.model.lora.base = "float"  # bitsandbytes can only quantize weights with values
        if accelerators.count() and changed.model.attention != "eager":
            changed.model.attention = "sdpa"
        rank = process_group.simulated(self._world_size, Parallelism.of(changed.train))
        try:
            # DTensors compute the shapes of full results, which are never allocated. A separate
            # mode keeps them from being counted.
            shapes = tracing(TracingContext(FakeTensorMode()))
            values = FakeTensorMode(allow_non_fake_inputs=True)
            with warnings.catch_warnings(), shapes, values, _RealIndices():
                # Experts return views, which is safe because they are never changed in place.
                warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
                models = LearnerModels(
                    changed, folder, rank, _open_without_weights, teacher=self._teacher
                )
                return self.run_pass(models)
        finally:
            rank.leave()

    def run_pass(self, models: LearnerModels) -> _Measured:
        """Run a pass over a rank's models, with or without values."""
        settings = self._settings
        module, kept = models.policy.module, list[float]()
        if settings.train.activation_offload:
            activation_offload.enable(module.policy, partial(_keep_sizes, kept))
        for parameter in module.parameters():
            if parameter.requires_grad:  # as after an earlier pass
                parameter.grad = torch.zeros_like(parameter)
        batch = self._full_micro_batch(models.model_adapter)
        tracker = FSDPMemTracker(module)
        peaks: list[dict[str, float]] = []

        def end_phase(*_: Any) -> None:
            peaks.append(_peak(tracker))
            tracker._peak_mem_snap = now = tracker.get_tracker_snapshot()
            tracker._peak_mem = {device: sizes["Total"] for device, sizes in now.items()}

        _end_phases(list(module.towers()), list(module.layers()), end_phase)
        with tracker:
            scores = module(
                batch,
                settings.rollout.temperature,
                settings.algorithm.config.has_entropy_bonus,
            )
            loss = scores.logprobs.sum() + scores.entropy.sum()
            loss.backward()
        end_phase()
        static = _static(models, settings.model.lora.base == "nf4")
        return _Measured(static=static | {"kept_on_cpu": sum(kept, 0.0)}, peaks=peaks)

    def _full_micro_batch(self, model_adapter: ModelAdapter) -> Batch:
        """Build a micro-batch of `train.micro_batch_tokens`, with images for a vision model."""
        settings = self._settings
        length = min(settings.rollout.max_context, settings.train.micro_batch_tokens)
        count = settings.train.micro_batch_tokens // length
        with _disable_current_modes():
            sequences = [self._sequence(model_adapter, length, index) for index in range(count)]
            rows = [[prefix_tree.single_sequence(index, length)] for index in range(count)]
            return collate.build_batch(sequences, rows, model_adapter)

    def _sequence(self, model_adapter: ModelAdapter, length: int, number: int) -> TokenSequence:
        model = self._settings.model
        reply = min(self._settings.rollout.max_new_tokens, length // 2)
        ids, sampled, turns = [0] * min(_PROMPT, length // 4), list[int](), list[int]()
        images = list[Any]()
        while True:
            image, markup = None, tuple[int, ...]()
            if model_adapter.image_token_id is not None:
                # Vary the images, because equal images would be encoded only once.
                screen = np.full((*_SCREEN, 3), (31 * number + len(images)) % 256, np.uint8)
                size = model.image_size
                target = None if size is None else (size[0], size[1])
                image = model_adapter.scale(screen, target, model.max_pixels)
                markup = model_adapter.image_markup(image)
            fits = len(ids) + len(markup) + reply <= length
            if turns and not fits:
                break
            if image is not None and fits:
                ids += markup
                images.append(image)
            sampled += range(len(ids), len(ids) + reply)
            turns += [len(images)] * reply
            ids += [0] * reply
        return TokenSequence(
            token_ids=tuple(ids + [0] * (length - len(ids))),
            sampled_positions=tuple(sampled),
            logprobs=(0.0,) * len(sampled),
            versions=(0,) * len(sampled),
            turns=tuple(turns),
            images=tuple(images),
            episode=number,
        )


def _end_phases(
    towers: Sequence[nn.Module], layers: Sequence[nn.Module], end_phase: Callable[..., None]
) -> None:
    """Divide a pass so that the memory of each phase grows linearly with the number of layers.

    Phases end when images are encoded; when the decoder has run; before the backward pass of the
    last layer, the second-to-last layer, and the first layer; and when the images' gradient is
    known.
    """
    has_run = set[nn.Module]()  # a checkpointed layer runs again in the backward pass

    def end_before_backward(output: Any) -> None:
        found = tree_leaves(dict(output) if isinstance(output, dict) else output)
        if tensors := [t for t in found if isinstance(t, Tensor) and t.requires_grad]:
            tensors[0].register_hook(end_phase)  # type: ignore[no-untyped-call]

    def ran(module: nn.Module, _: Any, output: Any) -> None:
        if module in has_run:
            return
        has_run.add(module)
        if module in towers or module is layers[-1]:
            end_phase()
        end_before_backward(output)

    for module in (*towers, layers[0], *layers[-2:]):
        module.register_forward_hook(ran)


def _peak(tracker: FSDPMemTracker) -> dict[str, float]:
    """Return the bytes at the peak so far, without shards, by field of `RankMemory`."""
    (found,) = tracker.get_tracker_snapshot("peak").values()
    sizes = {str(getattr(kind, "value", kind)): float(size) for kind, size in found.items()}
    return {
        "gathered": sum(sizes[kind] for kind in _GATHERED),
        "reduced": sum(sizes[kind] for kind in _REDUCED),
        "activations": sum(
            size for kind, size in sizes.items() if kind not in (*_GATHERED, *_REDUCED, *_STATIC)
        ),
    }


def _static(models: LearnerModels, in_4_bits: bool) -> dict[str, float]:
    policy = models.policy
    state = policy.state_tensors()
    base = [n for n in state if in_4_bits and lora_adapters.is_base_weight(n)]
    others = [p for copy in models.trained_copies().values() for p in (copy.model, copy.optimizer)]
    trained = [p for p in policy.module.parameters() if p.requires_grad]
    frozen = [model for model in (models.reference, models.teacher) if model is not None]
    return {
        "weights": _bytes(t for n, t in state.items() if n not in base),
        "replicated": float(sum(four_bit_weights.num_bytes(state[name].numel()) for name in base)),
        "remainders": _bytes(policy.remainders.values()),
        "moments": _moments(models.optimizer),
        "gradients": _bytes(trained),
        "reference": sum((_bytes(own.state_tensors().values()) for own in frozen), 0.0),
        "other_models": sum((_bytes(own.state_tensors().values()) for own in others), 0.0),
    }


def _moments(optimizer: Optimizer) -> float:
    state = optimizer.state_tensors()
    return _bytes(t for name, t in state.items() if not name.endswith(f"/{REMAINDER}"))


def _bytes(tensors: Iterable[Tensor]) -> float:
    """Return the size of this rank's shards in bytes."""
    return float(sum(local_shard(t).numel() * t.element_size() for t in tensors))


def _keep_sizes(kept: list[float]) -> saved_tensors_hooks:
    """Return hooks that record the sizes of tensors saved by autograd, and recreate them on use."""

    def pack(tensor: Tensor) -> Callable[[], Tensor]:
        if not isinstance(tensor, FakeTensor):
            return lambda: tensor
        kept.append(tensor.numel() * tensor.element_size())
        return partial(torch.empty, tensor.shape, dtype=tensor.dtype)

    return saved_tensors_hooks(pack, lambda make: make())


class _RealIndices(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives values to integer tensors, because the positions of images are computed from them.

    Results computed from tensors without values have no values either. Until weights are allocated,
    new tensors have values, because PEFT moves its adapters, which needs values.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._allocates_weights = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind is DTensor for kind in types):
            return NotImplemented
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            if func in _INDEXING:
                args = (args[0], _positions(args[1]), *args[2:])
            found = func(*args, **kwargs)
            return _routed(found, *args) if func is torch.ops.aten.topk.default else found
        is_meta = any(tensor.is_meta for tensor in tensors)
        device = torch.device(kwargs.get("device") or ("meta" if is_meta else "cpu"))
        dtype = kwargs.get("dtype")
        self._allocates_weights |= is_meta and device.type != "meta"
        if tensors:
            is_real = device.type == "meta" or not is_meta
        else:
            is_index = dtype is not None and not dtype.is_floating_point and dtype.itemsize > 2
            is_index |= "arange" in str(func)
            is_real = device.type == "meta" or is_index or not self._allocates_weights
        if not is_real:
            return func(*args, **kwargs)
        with _disable_current_modes():
            return func(*args, **kwargs)


def _positions(indices: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Replace masks that have values with positions, so that results have a known size."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is None or isinstance(index, FakeTensor) or index.dtype != torch.bool:
            found.append(index)
        else:
            with _disable_current_modes():
                found += index.nonzero(as_tuple=True)
    return found


def _routed(found: Sequence[Tensor], scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Return a router's `topk` result, with indices that spread tokens evenly over experts."""
    values, indices = found
    with _disable_current_modes():
        balanced = torch.arange(indices.numel()) % scores.shape[-1]
        return values, balanced.reshape(indices.shape)


def _open_without_weights(
    path: Path, *, dtype: str, attention: str, headless: bool
) -> tuple[nn.Module, Iterator[tuple[str, Tensor]]]:
    """Open a model on the meta device with weights that have no values; see `open_model`."""
    with _disable_current_modes():
        headers = dict(load_on_meta(path).named_parameters())
        model = load_headers(path, headers, dtype=dtype, attention=attention, headless=headless)
    return model, ((n, torch.empty_like(p, device="cpu")) for n, p in headers.items())
