"""Plans the CPU memory that a job takes on each node, in addition to current usage."""

import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.cluster.ask_nodes import ask_nodes
from agentrl.cluster.machine_resources import host_memory
from agentrl.cluster.placement import Layout, Node
from agentrl.cluster.reservation import Reservation
from agentrl.devices.device_sources import num_virtual
from agentrl.errors import ClusterError, ConfigError
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.plan.disk_plan import DiskPlan, is_in_memory
from agentrl.training.plan.learner_state_size import LearnerStateSize
from agentrl.training.plan.model_config_folder import (
    are_configs_here,
    config_folder,
    teacher_config_folder,
)
from agentrl.weight_sync.transport_choice import TransportChoice

log = logging.getLogger(__name__)

_PROCESS = 4e9
"""Assumed memory of a process that uses a GPU: torch, CUDA libraries and page-locked buffers."""
_IMAGE_CACHE = 4e9
"""An engine's cache of processed images; vLLM's default."""
_PHONES = 0.1e9
_PHONE = 10e6
"""Memory of a node's phone process, and of each phone in it: 24 phones took 227 MB after three
screens each."""
_OBJECT_STORE_SHARE, _MAX_OBJECT_STORE = 0.3, 200e9
"""Ray's defaults for its object store: maximum share of a node's memory, and maximum bytes."""
_PER_CORE = 50e9
"""Operations per second of a CPU core in float32 matrix products; 20 to 100 billion on servers."""
_PER_PARAMETER = 6
"""Operations per parameter and token in an update, forward and backward."""
_TOKENS, _MOST_S = 1000, 60.0
"""Number of tokens in an update, and the maximum time in seconds that it may take."""
_GB = 1e9
_COPIES = "copies of an asynchronous checkpoint"


@dataclass(slots=True, kw_only=True, frozen=True)
class HostMemoryPlan:
    """CPU memory that a job needs on a node, in bytes."""

    node: Node
    certain: Mapping[str, float]
    """Bytes of each item that the job certainly needs."""
    estimated: Mapping[str, float]
    """Bytes of each item that is estimated, or used only if memory is available."""
    size: float | None
    """Memory available to the job; None if unknown."""

    @property
    def items(self) -> dict[str, float]:
        """All items, certain and estimated."""
        return {name: size for name, size in {**self.certain, **self.estimated}.items() if size}

    @property
    def misfit(self) -> str | None:
        """Reason why the job cannot run; None if it might fit."""
        return self._exceeds(self.certain, "needs", "Use more nodes, or offload less")

    @property
    def warning(self) -> str | None:
        """Reason why the job may run out of memory; None if everything fits."""
        if self.misfit is not None:
            return None
        more = sum(self.items.values()) - (self.size or 0.0)
        waits = self.estimated.get(_COPIES, 0.0) >= more
        remedy = "set checkpoint.asynchronous=false" if waits else "use more nodes"
        return self._exceeds(self.items, "may need", f"Free some memory, or {remedy}")

    def _exceeds(self, items: Mapping[str, float], verb: str, remedy: str) -> str | None:
        total = sum(items.values())
        if self.size is None or total <= self.size:
            return None
        parts = ", ".join(f"{name} {size / _GB:.1f}" for name, size in items.items() if size)
        return (
            f"{self.node.name}: the job {verb} {total / _GB:.1f} GB of CPU memory ({parts}), but "
            f"only {self.size / _GB:.1f} GB are available. {remedy}"
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class HostMemoryPlanner:
    """Plans the CPU memory that a job needs on each node."""

    learner: LearnerSettings
    """Settings of the learner, with the layout's number of ranks."""
    layout: Layout
    size: LearnerStateSize
    copies_state: bool = False
    """True if ranks copy their state to save it while training (`checkpoint.asynchronous`)."""
    phones: int = 0
    """Number of virtual phones on each node."""
    offloaded: Mapping[str, float] | None = None
    """Bytes that a rank keeps in CPU memory instead of on its GPU, if simulated."""

    def plan(
        self,
        node: Node,
        size: float | None,
        *,
        publishes_in_memory: bool = True,
        files: float = 0.0,
    ) -> HostMemoryPlan:
        """Plan the memory of a node.

        Args:
            node: a node of the layout.
            size: memory that the job can use on the node; None if unknown.
            publishes_in_memory: True if new weights fit into `/dev/shm`.
            files: bytes of the run's files on the node, if their disk is in memory.
        """
        # Stores, processes and caches count for jobs with GPUs only; others have small models.
        store = 0.0
        if self.learner.rollout.launcher == "ray" and size is not None and self._uses_gpus:
            store = min(_OBJECT_STORE_SHARE * size, _MAX_OBJECT_STORE)
        ranks = sum(slot.node == node for slot in self.layout.ranks)
        copies = self._share_of_state * ranks * self.copies_state
        processes = ranks + sum(
            max(1, len(slot.gpus)) for slot in self.layout.engines if slot.node == node
        )
        engines = sum(slot.node == node for slot in self.layout.engines)
        return HostMemoryPlan(
            node=node,
            size=size,
            certain={
                **{name: each * ranks for name, each in self._offloaded().items()},
                "published weights (/dev/shm)": self._published(node) * publishes_in_memory,
                "checkpoints and model on a RAM disk": files,
            },
            estimated={
                _COPIES: copies,
                "Ray's object store (at most)": store,
                "virtual phones (estimated)": (_PHONES + _PHONE * self.phones) * bool(self.phones),
                "processes (assumed)": _PROCESS * processes * self._uses_gpus,
                "image caches of engines (at most)": _IMAGE_CACHE * engines * self._uses_gpus,
            },
        )

    @property
    def _uses_gpus(self) -> bool:
        return any(slot.gpus for slot in self.layout.ranks)

    @property
    def _share_of_state(self) -> float:
        """Return the size of a rank's shard of the state."""
        return self.size.state * self.learner.train.replicas / max(1, len(self.layout.ranks))

    def _offloaded(self) -> Mapping[str, float]:
        """Return how many bytes each rank keeps in CPU memory, by what they hold."""
        if self.offloaded is not None:
            return self.offloaded
        size, train = self.size, self.learner.train
        share = train.replicas / max(1, len(self.layout.ranks))
        if train.offload or not self._uses_gpus:
            held = size.state + size.gradients + size.teacher
            return {"weights, moments, gradients": held * share}
        return {"moments": size.moments * share * self.learner.optim.offload_moments}

    def _published(self, node: Node) -> float:
        """Return the bytes of published weights that wait for engines in a node's shared memory."""
        users = {slot.node for slot in (*self.layout.ranks[:1], *self.layout.engines)}
        if node not in users or not self.layout.engines or not self.layout.ranks:
            return 0.0
        gpus = sum(one.gpus for one in self.layout.nodes)
        learner = self.learner
        choice = TransportChoice(
            rollout=learner.rollout, train=learner.train, lora=learner.model.lora
        )
        return float(choice.transport_class(gpus).needs.memory_copies * self.size.model)


def phones_per_node(play: RolloutPlan, layout: Layout) -> int:
    """Return the number of virtual phones per node, assuming an even distribution."""
    if play.tasks[""].train.app is None:
        return 0
    devices = play.settings.devices
    nodes = {slot.node for slot in layout.engines} or {layout.nodes[0]}
    sources = [devices.of_host(host).source for host in devices.hosts] or [devices.source]
    counts = (num_virtual(one) or 0 for one in sources if isinstance(one, str))
    return math.ceil(max(counts, default=0) / (len(devices.hosts) or len(nodes)))


def check_host_memory(
    planner: HostMemoryPlanner, disk: DiskPlan, run: Path, reservation: Reservation
) -> None:
    """Compare the memory that a job needs on each of its nodes with the free memory there.

    Logs a warning if memory may not suffice. The run's folder must be on the node of this process,
    and the location of published weights must already be known.

    Raises:
        ConfigError: a node lacks memory that the job certainly needs.
        ClusterError: a node did not answer.
    """
    layout, deadline_s = reservation.layout, planner.learner.rollout.start_deadline_s
    nodes = list(dict.fromkeys(slot.node for slot in (*layout.ranks, *layout.engines)))
    for reply in ask_nodes(nodes, host_memory, deadline_s):
        if reply.result is None:
            raise ClusterError(f"node {reply.node.name}: {reply.error}")
        in_memory = reply.node == layout.nodes[0] and is_in_memory(run)
        plan = planner.plan(
            reply.node,
            reply.result.free,
            publishes_in_memory=reservation.publishes_in_memory(reply.node),
            files=disk.needed if in_memory else 0.0,
        )
        if plan.misfit is not None:
            raise ConfigError(plan.misfit)
        if plan.warning is not None:
            log.warning("%s", plan.warning)


def misfits_without_gpus(
    learner: LearnerSettings, nodes: Sequence[Node], memory: float, run: Path | None = None
) -> list[str]:
    """List what does not fit on nodes without GPUs that have `memory` bytes each.

    The list is empty if the configurations of the models are not available locally.

    Args:
        learner: settings of the learner.
        nodes: nodes of the job.
        memory: CPU memory of each node.
        run: see `teacher_config_folder`.

    Raises:
        ConfigError: the model's configuration cannot be read.
    """
    model = learner.model
    if model.path == "tiny" or not are_configs_here(learner, run):
        return []
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = config_folder(model, Path(scratch) / "model")
        teacher = teacher_config_folder(learner, Path(scratch) / "teacher", run)
        size = LearnerStateSize.of(folder, learner, teacher)
    # One engine's copy of the weights comes on top of what training holds.
    needed = size.state + size.gradients + size.teacher + size.model
    there = memory * len(nodes)
    found = []
    if needed > there:
        found.append(
            f"weights, gradients, moments and an engine take {needed / _GB:.0f} GB of CPU memory, "
            f"but only {there / _GB:.0f} GB are available"
        )
    itemsize = 2 if model.dtype == "bfloat16" else 4
    parameters, cores = size.model / itemsize, sum(node.cpus for node in nodes)
    seconds = _PER_PARAMETER * parameters * _TOKENS / (_PER_CORE * max(1, cores))
    if seconds > _MOST_S:
        found.append(
            f"there is no GPU, and an update of {_TOKENS:,} tokens by {parameters / 1e9:.1f} "
            f"billion parameters takes about {seconds / 60:.0f} minutes on {cores:g} CPU cores; "
            "use a GPU (`agentrl plan` computes the required size), or a smaller model"
        )
    return found
