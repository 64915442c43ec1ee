"""The memory that a job takes on each GPU and node, planned without weights or GPUs.

1 GB is 10^9 bytes; all sizes are in bytes.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentrl.cluster.placement import Layout, Node, plan_layout
from agentrl.config import Config, ModelConfig
from agentrl.config.bounds import path_of
from agentrl.errors import ConfigError
from agentrl.policies.models import load_on_meta
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_source import find_config, is_on_hub, tokenizer_folder
from agentrl.policies.open_model import engine_class
from agentrl.training.learner.memory_simulation import RankMemory, simulate
from agentrl.training.learner.parallel import sequence_parallel

PROCESS = 1e9
"""Assumed for the context, kernels and communication buffers of a process on a GPU."""
ENGINE_WORK = 2e9
"""Assumed for an engine's activations and CUDA graphs, which vLLM measures when it starts."""
_KNOWN = Path(__file__).parent.parent / "configs" / "models"
"""Dimensions of models whose configuration need not be downloaded."""
_GB = 1e9


@dataclass(slots=True, kw_only=True, frozen=True)
class MemoryPlan:
    """What one GPU of each kind, and the CPU memory of one node, hold."""

    card: float
    """Size of a GPU's memory."""
    layout: Layout
    learning: dict[str, float]
    """A rank's GPU at the peak of an update."""
    playing: dict[str, float]
    """An engine's GPU, without its KV cache."""
    kv_token: float
    """One token in the KV cache of a GPU."""
    max_context: int
    cpu: dict[str, float]
    """CPU memory of the node with the most ranks, as far as it replaces GPU memory."""
    remedies: dict[str, float]
    """Settings that would save memory of an update, and about how much."""

    @property
    def kv_tokens(self) -> int:
        """Number of tokens that the KV cache has room for; negative if even weights do not fit."""
        return int((self.card - sum(self.playing.values())) // self.kv_token)

    @property
    def problems(self) -> list[str]:
        """What does not fit, and what to change; empty if everything does."""
        found = []
        if (missing := sum(self.learning.values()) - self.card) > 0:
            found.append(f"updates need {missing / _GB:.1f} GB more. {self._remedy(missing)}")
        if self.kv_tokens < self.max_context:
            found.append(
                f"engines: room for {max(0, self.kv_tokens)} tokens of KV cache, and one context "
                f"has {self.max_context}. " + self._engine_remedy()
            )
        return found

    def _remedy(self, missing: float) -> str:
        settings, saved = [], 0.0
        for setting, amount in self.remedies.items():
            settings.append(f"{setting} (about {amount / _GB:.1f} GB)")
            saved += amount
            if saved >= missing:
                return f"Set {' and '.join(settings)}, or use more GPUs"
        return "Use more or larger GPUs, a smaller model, or adapters (model.lora.rank=32)"

    def _engine_remedy(self) -> str:
        apart = "give engines GPUs of their own, several each: rollout.place=apart "
        apart += "rollout.engine_kwargs.tensor_parallel_size=2"
        if not self.layout.together:
            return "Give an engine more GPUs: rollout.engine_kwargs.tensor_parallel_size"
        return f"Keep less beside them with train.offload=true, or {apart}"


def plan_memory(config: Config, card: float, gpus: int, nodes: int = 1) -> MemoryPlan:
    """Plan a job's memory on GPUs that need not exist.

    Args:
        config: the job.
        card: memory of each GPU.
        gpus: number of GPUs per node.
        nodes: number of nodes.

    Raises:
        ConfigError: the model's configuration cannot be found or read, or engines and ranks do not
            fit the number of GPUs.
    """
    config.validate_for_training()
    for name in ("tensor_parallel", "expert_parallel"):
        if getattr(config.train, name) > 1:
            raise ConfigError(
                f"train.{name}={getattr(config.train, name)}: agentrl plan does not simulate it; "
                f"plan with train.{name}=1, which takes more of a GPU"
            )
    layout = _layout(config, gpus, nodes)
    config = layout.applied_to(config)
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = config_folder(config.model, Path(scratch) / "model")
        return combine(config, card, layout, folder, rank_memory(config, folder, layout))


def rank_memory(config: Config, folder: Path, layout: Layout) -> RankMemory:
    """What the learner of a job takes on each rank."""
    if config.train.sequence_parallel > 1:
        text = _text_config(folder)
        sequence_parallel.check_heads(text["num_attention_heads"], config.train.sequence_parallel)
    return simulate(config, folder, len(layout.ranks))


def combine(
    config: Config, card: float, layout: Layout, folder: Path, memory: RankMemory
) -> MemoryPlan:
    """The plan of a job whose learner takes so much memory.

    Args:
        config: the job, with its placement decided.
        card: memory of each GPU.
        layout: where ranks and engines run.
        folder: of the model's configuration.
        memory: of one rank, as if nothing were offloaded.
    """
    state, on_cpu = _state(config, memory)
    sleeps = _sleeps(config, layout)
    shards = max(1, engine_class(config.rollout).num_workers(config.rollout.engine_kwargs))
    engine = {
        "engine: weights": _engine_weights(folder, config.model) / shards,
        "engine: activations, CUDA graphs (assumed)": ENGINE_WORK,
        "engine: process (assumed)": PROCESS,
    }
    learner = {**state, "learner: process (assumed)": PROCESS}
    learning = learner | {
        "full weights of the parts in use": memory.gathered,
        "full gradients being summed": memory.reduced,
        "activations, logits, images": memory.activations,
    }
    if not config.train.offload:
        learning["gradients"] = memory.gradients
    playing = engine
    if layout.together:
        playing = learner | engine
        learning |= {"engine: process (assumed)": PROCESS} if sleeps else engine
    most = max(sum(slot.node == node for slot in layout.ranks) for node in layout.nodes)
    if layout.together and sleeps and config.model.lora.rank:
        on_cpu["weights of sleeping engines"] = engine["engine: weights"]
    return MemoryPlan(
        card=card,
        layout=layout,
        learning={name: size for name, size in learning.items() if size},
        playing={name: size for name, size in playing.items() if size},
        kv_token=_kv_token(folder, config.model) / shards,
        max_context=config.rollout.max_context,
        cpu={name: size * most for name, size in on_cpu.items() if size},
        remedies=dict(_remedies(config, memory, folder)),
    )


def _state(config: Config, memory: RankMemory) -> tuple[dict[str, float], dict[str, float]]:
    """What a rank keeps between updates on its GPU, and what it keeps in CPU memory."""
    weights = {
        "weights": memory.weights,
        "4-bit weights": memory.replicated,
        "lower bits of weights": memory.remainders,
        "reference model": memory.reference,
        "critic, implicit reward model": memory.other_models,
    }
    moments = {"moments": memory.moments}
    kept = {"layers' inputs": memory.kept_on_cpu}
    if config.train.offload:
        return {}, weights | moments | {"gradients": memory.gradients} | kept
    if config.optim.offload_moments:
        return weights, moments | kept
    return weights | moments, kept


def _remedies(config: Config, memory: RankMemory, folder: Path) -> Iterator[tuple[str, float]]:
    """Settings that save memory of an update, the cheapest first."""
    train, optim = config.train, config.optim
    if not train.gradient_checkpointing:
        yield "train.gradient_checkpointing=true", memory.activations * 0.7
    if train.master_dtype == "float32" and config.model.dtype == "bfloat16":
        yield "train.master_dtype=bfloat16", memory.gradients / 2
    on_gpu = not (optim.offload_moments or train.offload)
    if on_gpu and optim.moments != "8bit":
        yield "optim.moments=8bit", memory.moments * (0.75 if optim.moments == "float32" else 0.5)
    if train.gradient_checkpointing and not train.activation_offload:
        text = _text_config(folder)
        inputs = text["num_hidden_layers"] * text["hidden_size"] * train.micro_batch_tokens
        yield "train.activation_offload=true", 2.0 * inputs / train.sequence_parallel
    yield f"train.micro_batch_tokens={train.micro_batch_tokens // 2}", memory.activations / 2
    if on_gpu:
        rest = 0.25 if optim.moments == "float32" else 0.5
        yield "optim.offload_moments=true", memory.moments * rest
    if not train.offload:
        state = memory.resident - memory.moments + memory.gradients
        yield "train.offload=true", state


def _layout(config: Config, gpus: int, nodes: int) -> Layout:
    engine = engine_class(config.rollout)
    cluster = [Node(address=f"node {index}", cpus=64, gpus=gpus) for index in range(nodes)]
    each = engine.num_gpus(config.rollout.engine_kwargs)
    return plan_layout(cluster, config.rollout, config.train, each)


def _sleeps(config: Config, layout: Layout) -> bool:
    if config.rollout.sleep is not None:
        return config.rollout.sleep
    sleeps = engine_class(config.rollout).capabilities.sleeps
    return layout.together and sleeps and config.train.mode == "sync"


def config_folder(model: ModelConfig, folder: Path) -> Path:
    """Write a model's configuration, without weights, to a new folder.

    Args:
        model: of which a config.json suffices.
        folder: is created.

    Raises:
        ConfigError: there is none.
    """
    if model.path == "tiny":
        return tokenizer_folder(model, folder)
    known = _KNOWN / f"{Path(model.path).name}.json"
    if is_on_hub(model) and known.is_file():
        folder.mkdir()
        shutil.copy(known, folder / "config.json")
    else:
        source = find_config(model) if is_on_hub(model) else path_of(model.path, "model.path")
        read_json(source / "config.json")
        folder.mkdir()
        for file in source.iterdir():
            if file.suffix in (".json", ".jinja", ".txt", ".model"):
                shutil.copy(file, folder / file.name)
    _add_missing(folder)
    return folder


def _add_missing(folder: Path) -> None:
    """Files that adapters read, whose content does not matter for memory."""
    config = read_json(folder / "config.json")
    stand_ins: dict[str, Any] = {
        "preprocessor_config.json": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "tokenizer.json": {
            "added_tokens": [
                {"content": f"<|{name}|>", "id": config.get(f"{key}_token_id", 0)}
                for name, key in (
                    ("vision_start", "vision_start"),
                    ("vision_end", "vision_end"),
                    ("image_pad", "image"),
                    ("video_pad", "video"),
                )
            ]
        },
    }
    for name, content in stand_ins.items():
        if not (folder / name).is_file():
            (folder / name).write_text(json.dumps(content))


def _text_config(folder: Path) -> Mapping[str, Any]:
    config = read_json(folder / "config.json")
    text: dict[str, Any] = config.get("text_config") or config
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
        if not isinstance(text.get(key), int):
            raise ConfigError(f"{folder / 'config.json'}: has no {key}")
    return text


def _engine_weights(folder: Path, model: ModelConfig) -> float:
    return float(_num_parameters(folder) * _itemsize(model))


@cache
def _num_parameters(folder: Path) -> int:
    return sum(p.numel() for p in load_on_meta(folder).parameters())


def _kv_token(folder: Path, model: ModelConfig) -> float:
    """Bytes of one token's keys and values in all layers."""
    text = _text_config(folder)
    heads = text["num_attention_heads"]
    size = text.get("head_dim") or text["hidden_size"] // heads
    keys = text.get("num_key_value_heads") or heads
    return float(2 * text["num_hidden_layers"] * keys * size * _itemsize(model))


def _itemsize(model: ModelConfig) -> int:
    return 2 if model.dtype == "bfloat16" else 4
