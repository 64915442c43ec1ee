"""Plans the memory that a job needs on each GPU and node, without weights or GPUs.

1 GB is 10^9 bytes; all sizes are in bytes.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.cluster.placement import Layout, Node, plan_layout
from agentrl.config import CheckpointConfig, RolloutConfig, TrainConfig
from agentrl.errors import ConfigError, boundary
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.open_engine import engine_class
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.plan.disk_plan import DiskPlan
from agentrl.training.plan.host_memory_plan import (
    HostMemoryPlan,
    HostMemoryPlanner,
    phones_per_node,
)
from agentrl.training.plan.learner_state_size import LearnerStateSize
from agentrl.training.plan.memory_simulation import MemorySimulation, RankMemory
from agentrl.training.plan.model_config_folder import config_folder, teacher_config_folder

PROCESS = 1e9
"""Assumed size of a process's context, kernels and communication buffers on a GPU."""
ENGINE_WORK = 2e9
"""Assumed size of an engine's activations and CUDA graphs, which vLLM measures when it starts."""
_GB = 1e9
_LEARNING, _PLAYING = 0, 1
_LARGER = "Use more or larger GPUs, a smaller model, or adapters (model.lora.rank=32)"


class CannotSimulate(ConfigError):
    """Raised if a job's memory cannot be simulated, although the job itself may be fine."""


@dataclass(slots=True, kw_only=True, frozen=True)
class MemoryPlan:
    """Memory usage of a learner's GPU, of an engine's GPU, and of a node's CPU."""

    card: float | None
    """Size of a GPU's memory; None if unknown."""
    layout: Layout
    learning: dict[str, float]
    """Memory on a rank's GPU at the peak of an update."""
    playing: dict[str, float]
    """Memory on an engine's GPU without the KV cache; empty if engines do not use GPUs."""
    kv_token: float
    """Size of a token in a GPU's KV cache."""
    max_context: int
    host: HostMemoryPlan
    """CPU memory of the node that needs the most."""
    disk: DiskPlan
    """Disk space in the run's folder."""
    remedies: dict[str, tuple[float, float]]
    """Approximate savings of settings, in an update and while engines play."""

    @property
    def kv_tokens(self) -> int | None:
        """Number of tokens that fit into an engine's KV cache; None if unknown."""
        if self.card is None or not self.playing:
            return None
        return max(0, int((self.card - sum(self.playing.values())) // self.kv_token))

    @property
    def problems(self) -> list[str]:
        """Problems with memory, each with a fix; empty if everything fits or sizes are unknown."""
        found = []
        missing = sum(self.learning.values()) - (math.inf if self.card is None else self.card)
        if missing > 0:
            remedy = self._remedy(missing, _LEARNING) or _LARGER
            found.append(f"updates need {missing / _GB:.1f} GB more GPU memory. {remedy}")
        if (tokens := self.kv_tokens) is not None and tokens < self.max_context:
            assert self.card is not None, "otherwise the number of tokens is unknown"
            # vLLM's share of a GPU is rounded to hundredths.
            missing = self.max_context * self.kv_token + 0.01 * self.card
            missing += sum(self.playing.values()) - self.card
            found.append(
                f"the KV cache of an engine has room for {tokens} tokens, fewer than "
                f"rollout.max_context={self.max_context}. {self._engine_remedy(missing)}"
            )
        if (misfit := self.host.misfit) is not None:
            found.append(misfit)
        return found

    def describe(self) -> dict[str, dict[str, float | str]]:
        """Return the memory usage of each GPU and of a node's CPU, in GB of 10^9 bytes."""
        rank = _table(self.learning, self.card)
        found = {"GPU of a rank, at the peak of an update (GB)": rank}
        if self.playing:
            engine = _table(self.playing, self.card)
            if (tokens := self.kv_tokens) is None:
                size = self.max_context * self.kv_token / _GB
                engine[f"KV cache of each context of {self.max_context} tokens"] = round(size, 2)
            else:
                contexts = f"{tokens // self.max_context} contexts of {self.max_context}"
                left = tokens * self.kv_token / _GB
                engine["left for the KV cache"] = f"{left:.2f} ({tokens:,} tokens, {contexts})"
            found["GPU of an engine, while it plays (GB)"] = engine
        found["CPU memory of a node (GB)"] = _table(self.host.items, self.host.size)
        found["disk of the run's folder (GB)"] = _table(self.disk.describe(), None)
        return found

    def _remedy(self, missing: float, when: int) -> str | None:
        settings, saved = [], 0.0
        for setting, amounts in self.remedies.items():
            if amounts[when]:
                settings.append(f"{setting} (about {amounts[when] / _GB:.1f} GB)")
                saved += amounts[when]
            if saved >= missing:
                return f"Set {' and '.join(settings)}, or use more GPUs"
        return None

    def _engine_remedy(self, missing: float) -> str:
        apart = "give each engine several GPUs of its own: rollout.place=apart "
        apart += "rollout.engine_kwargs.tensor_parallel_size=2"
        if not self.layout.together:
            return "Give an engine more GPUs: rollout.engine_kwargs.tensor_parallel_size"
        remedy = self._remedy(missing, _PLAYING)
        return f"{remedy}, or {apart}" if remedy else f"G{apart[1:]}"


def _table(items: Mapping[str, float], size: float | None) -> dict[str, float | str]:
    """Return items and their total in GB."""
    total = round(sum(items.values()) / _GB, 2)
    found: dict[str, float | str] = {name: round(item / _GB, 2) for name, item in items.items()}
    return found | {"total": total if size is None else f"{total:.2f} of {size / _GB:.4g}"}


def plan_memory(
    learner: LearnerSettings,
    play: RolloutPlan,
    checkpoint: CheckpointConfig,
    layout: Layout,
    card: float | None,
    report: Callable[[str], None] = lambda line: None,
    host: float | None = None,
    run: Path | None = None,
) -> MemoryPlan:
    """Plan a job's memory.

    Args:
        learner: the job's learner.
        play: phones and recordings of the job.
        checkpoint: the checkpoints that the job keeps.
        layout: placement of ranks and engines; the GPUs need not exist.
        card: memory of each GPU; None if unknown.
        report: see `MemorySimulation`.
        host: CPU memory of each node; None if unknown.
        run: see `teacher_config_folder`.

    Raises:
        CannotSimulate: the model's code does not run on tensors without values.
        ConfigError: the model's configuration cannot be found or read, the teacher does not
            exist, or the model cannot be sharded as configured.
    """
    model = learner.model
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = config_folder(model, Path(scratch) / "model")
        teacher = teacher_config_folder(learner, Path(scratch) / "teacher", run)
        with boundary(CannotSimulate, f"model.path={model.path}: cannot be simulated"):
            memory = MemorySimulation(learner, len(layout.ranks), report).run(folder, teacher)
        planner = MemoryPlanner(learner, play, checkpoint, layout, folder, teacher)
        return planner.plan(card, memory, host)


def layout_on(gpus: int, nodes: int, rollout: RolloutConfig, train: TrainConfig) -> Layout:
    """Plan a job's layout on nodes with `gpus` GPUs each.

    Raises:
        ConfigError: the job does not fit on the nodes.
    """
    cluster = [Node(address=f"node {index}", cpus=64, gpus=gpus) for index in range(nodes)]
    each = engine_class(rollout).num_gpus(rollout.engine_kwargs)
    return plan_layout(cluster, rollout, train, each)


class MemoryPlanner:
    """Plans the memory of a job, given its layout.

    Args:
        learner: the job's learner.
        play: phones and recordings of the job.
        checkpoint: the checkpoints that the job keeps.
        layout: placement of ranks and engines.
        folder: folder with the model's configuration.
        teacher: folder with the teacher's configuration; None if it is the model's.
    """

    def __init__(
        self,
        learner: LearnerSettings,
        play: RolloutPlan,
        checkpoint: CheckpointConfig,
        layout: Layout,
        folder: Path,
        teacher: Path | None = None,
    ) -> None:
        self._learner = learner.placed(layout)
        self._play, self._checkpoint, self._layout = play, checkpoint, layout
        self._text = _text_config(folder)
        self._size = LearnerStateSize.of(folder, learner, teacher)

    def plan(self, card: float | None, memory: RankMemory, host: float | None = None) -> MemoryPlan:
        """Plan the job, given the memory of a learner rank.

        Args:
            card: memory of each GPU; None if unknown.
            memory: memory of a rank, as if nothing were offloaded.
            host: CPU memory of each node; None if unknown.
        """
        rollout, train, layout = self._learner.rollout, self._learner.train, self._layout
        state, on_cpu = self._state(memory)
        cls = engine_class(rollout)
        # With data parallelism, an engine has several complete copies of the model.
        arguments = rollout.engine_kwargs
        shards = cls.num_workers(arguments) // int(arguments.get("data_parallel_size", 1))
        engine = {
            "engine: weights": self._size.model / shards,
            "engine: activations, CUDA graphs (assumed)": ENGINE_WORK,
            "engine: process (assumed)": PROCESS,
        }
        learner = {**state, "learner: process (assumed)": PROCESS}
        learning = learner | {
            "gathered weights in use": memory.gathered,
            "gradients being reduced": memory.reduced,
            "activations, logits, images": memory.activations,
        }
        if not train.offload:
            learning["gradients"] = memory.gradients
        playing = engine if any(slot.gpus for slot in layout.engines) else {}
        if layout.together:
            sleeps = rollout.sleep
            if sleeps is None:
                sleeps = cls.capabilities.sleeps and train.mode == "sync"
            playing = learner | engine
            learning |= {"engine: process (assumed)": PROCESS} if sleeps else engine
            if sleeps and self._learner.model.lora.rank:
                on_cpu["weights of sleeping engines"] = engine["engine: weights"]
        if card is not None and playing:
            beside = sum(learner.values()) if layout.together else 0.0
            share = cls.memory_share(arguments, 1 - beside / card)
            playing = playing | {"engine: left free": max(0.0, (1 - share) * card - beside)}
        return MemoryPlan(
            card=card,
            layout=layout,
            learning={name: size for name, size in learning.items() if size},
            playing={name: size for name, size in playing.items() if size},
            kv_token=self._kv_token_of(shards, int(arguments.get("pipeline_parallel_size", 1))),
            max_context=rollout.max_context,
            host=self._fullest_node(on_cpu, host),
            disk=self._disk(),
            remedies=dict(self._remedies(memory)),
        )

    def _state(self, memory: RankMemory) -> tuple[dict[str, float], dict[str, float]]:
        """Return the sizes of what a rank keeps between updates, on its GPU and in CPU memory."""
        weights = {
            "weights": memory.weights,
            "4-bit weights": memory.replicated,
            "master weights (low 16 bits)": memory.remainders,
            "reference model, teacher": memory.reference,
            "critic, implicit reward model": memory.other_models,
        }
        moments = {"moments": memory.moments}
        kept = {"layers' inputs": memory.kept_on_cpu}
        if self._learner.train.offload:
            return {}, weights | moments | {"gradients": memory.gradients} | kept
        if self._learner.optim.offload_moments:
            return weights, moments | kept
        return weights | moments, kept

    def _disk(self) -> DiskPlan:
        return DiskPlan.of(
            self._size, self._checkpoint, self._play.settings.run, self._learner.train.steps,
            evaluates=bool(self._play.tasks[""].eval.every),
        )  # fmt: skip

    def _fullest_node(self, offloaded: Mapping[str, float], size: float | None) -> HostMemoryPlan:
        """Plan the node that needs the most CPU memory."""
        planner = HostMemoryPlanner(
            learner=self._learner,
            layout=self._layout,
            size=self._size,
            copies_state=self._checkpoint.asynchronous,
            phones=phones_per_node(self._play, self._layout),
            offloaded=offloaded,
        )
        plans = [planner.plan(node, size) for node in self._layout.nodes]
        return max(plans, key=lambda plan: sum(plan.items.values()))

    def _remedies(self, memory: RankMemory) -> Iterator[tuple[str, tuple[float, float]]]:
        """Return settings that save memory, starting with those that cost the least speed."""
        train, optim = self._learner.train, self._learner.optim
        if not train.gradient_checkpointing:
            yield "train.gradient_checkpointing=true", (memory.activations * 0.7, 0.0)
        if train.master_dtype == "float32" and self._itemsize == 2:
            yield "train.master_dtype=bfloat16", (memory.gradients / 2, 0.0)
        on_gpu = not (optim.offload_moments or train.offload)
        rest = {"float32": 0.25, "bfloat16": 0.5}.get(optim.moments, 1.0)
        if on_gpu and rest < 1:
            yield "optim.moments=8bit", (memory.moments * (1 - rest),) * 2
        if train.gradient_checkpointing and not train.activation_offload:
            inputs = self._text["num_hidden_layers"] * self._text["hidden_size"]
            saved = 2.0 * inputs * train.micro_batch_tokens / train.sequence_parallel
            yield "train.activation_offload=true", (saved, 0.0)
        yield (
            f"train.micro_batch_tokens={train.micro_batch_tokens // 2}",
            (memory.activations / 2, 0.0),
        )
        if on_gpu:
            yield "optim.offload_moments=true", (memory.moments * rest,) * 2
        if not train.offload:
            state, _ = self._state(memory)
            state.pop("moments", None)
            kept = sum(state.values())
            yield "train.offload=true", (kept + memory.gradients, kept)

    @property
    def _itemsize(self) -> int:
        """Size in bytes of a weight, key or value in the engines' dtype."""
        return 2 if self._learner.model.dtype == "bfloat16" else 4

    def _kv_token_of(self, gpus: int, stages: int) -> float:
        """Return the size in bytes of a token's keys and values on each GPU of an engine.

        Args:
            gpus: number of GPUs that the model is divided among.
            stages: number of parts that the layers are divided into. Within a part, heads are
                divided, but a single key-value head is not.
        """
        heads = self._text["num_attention_heads"]
        size = self._text.get("head_dim") or self._text["hidden_size"] // heads
        keys = self._text.get("num_key_value_heads") or heads
        layers = self._text["num_hidden_layers"] / stages
        return float(2 * layers * max(1, keys / (gpus / stages)) * size * self._itemsize)


def _text_config(folder: Path) -> Mapping[str, Any]:
    config = read_json(folder / "config.json")
    text: dict[str, Any] = config.get("text_config") or config
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
        if not isinstance(text.get(key), int):
            raise ConfigError(f"{folder / 'config.json'}: has no {key}")
    return text
