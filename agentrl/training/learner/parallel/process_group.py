"""One rank of the learner: process group, device and collective operations.

A single rank runs the same code, with an in-memory store instead of the network.
"""

import math
import socket
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, HashStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from agentrl import accelerators
from agentrl.config import TrainConfig
from agentrl.training.learner.parallel.sequence_parallel import Slice


@dataclass(slots=True, kw_only=True, frozen=True)
class Rank:
    """One rank of the learner, and its collective operations."""

    number: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    """Ranks that decoder layers are sharded over, [shards], or [replicas, shards] with several
    replicas (HSDP)."""
    root_mesh: DeviceMesh
    """Mesh like `mesh` for weights that tensor parallelism does not divide."""
    owner: bool
    """Whether this rank created the process group and must destroy it."""
    slice: Slice | None = None
    """The rank's columns of every row; None without sequence parallelism."""
    tensor_mesh: DeviceMesh | None = None
    """Ranks that share decoder layers, [ranks]; None without tensor parallelism."""
    expert_mesh: DeviceMesh | None = None
    """Ranks that share experts, [ranks]; None without expert parallelism."""
    expert_shards: DeviceMesh | None = None
    """Mesh like `mesh` for expert weights."""

    @property
    def tensor(self) -> int:
        """Number of ranks that share decoder layers with this rank."""
        return 1 if self.tensor_mesh is None else self.tensor_mesh.size()

    @property
    def _group_size(self) -> int:
        """Number of ranks that work on the same rows as this rank."""
        return self.slice.count if self.slice else self.tensor

    @property
    def group(self) -> int:
        """Index of this rank's group; the ranks of a group work on the same rows."""
        return self.number // self._group_size

    @property
    def groups(self) -> int:
        """Number of groups, each with its own rows."""
        return self.world_size // self._group_size

    @property
    def is_group_leader(self) -> bool:
        """True on one rank of each group, which counts the tokens that the whole group computed."""
        return self.number % self._group_size == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum values over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Take the elementwise maximum over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def gather(self, values: Tensor) -> Tensor:
        """Return the values of all ranks, [ranks, ...]."""
        found = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(found, values)
        return torch.stack(found)

    def new_cpu_group(self, deadline_s: float) -> dist.ProcessGroup:
        """Create another group of all ranks for use in a separate thread; a collective call."""
        group: dist.ProcessGroup = dist.new_group(
            backend="gloo", timeout=timedelta(seconds=deadline_s)
        )
        return group

    def leave(self) -> None:
        """Destroy the process group if this rank created it; may be called twice."""
        if self.owner and dist.is_initialized():
            dist.destroy_process_group()


@dataclass(slots=True, kw_only=True, frozen=True)
class Parallelism:
    """Sizes of the groups of neighboring ranks, for each kind of parallelism."""

    sequence: int = 1
    """Number of ranks that share the tokens of a row."""
    tensor: int = 1
    """Number of ranks that share decoder layers."""
    expert: int = 1
    """Number of ranks that share experts."""
    replicas: int = 1
    """Number of copies of the weights."""

    @classmethod
    def of(cls, train: TrainConfig) -> "Parallelism":
        """Read the parallelism from the configuration."""
        return cls(
            sequence=train.sequence_parallel,
            tensor=train.tensor_parallel,
            expert=train.expert_parallel,
            replicas=train.replicas,
        )


_ALONE = Parallelism()


def join(
    rank: int = 0,
    world_size: int = 1,
    rendezvous: str | None = None,
    deadline_s: float = 600.0,
    parallelism: Parallelism = _ALONE,
) -> Rank:
    """Join the process group.

    Args:
        rank: number of this rank, from 0.
        world_size: number of ranks.
        rendezvous: `tcp://host:port` that rank 0 listens on, or `file://path` on a file system that
            the ranks share; None for a single rank.
        deadline_s: timeout of every collective operation.
        parallelism: how the ranks are divided.
    """
    # Under Ray each actor sees only its own accelerator; elsewhere every rank sees all of them.
    device = accelerators.device(rank)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    owner = not dist.is_initialized()
    if owner:
        timeout = timedelta(seconds=deadline_s)
        # Metrics and checkpoints are exchanged on the CPU even if the ranks use GPUs.
        backend = "gloo"
        if device.type != "cpu":
            backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
        dist.init_process_group(
            backend,
            rank=rank,
            world_size=world_size,
            timeout=timeout,
            store=_store(rank, world_size, rendezvous, timeout),
        )
    assert dist.get_world_size() == world_size, "another process group is open in this process"
    return _placed(device, parallelism, deadline_s, owner=owner)


def _store(rank: int, world_size: int, rendezvous: str | None, timeout: timedelta) -> Store:
    """Open the store through which the ranks find each other."""
    if rendezvous is None or world_size == 1:
        return HashStore()
    place, listener = urlsplit(rendezvous), None
    if place.scheme == "file":
        return FileStore(place.path, world_size)
    assert place.hostname is not None
    assert place.port is not None
    # Without this, torch would listen on all addresses of the machine.
    if rank == 0:
        made = socket.create_server((place.hostname, place.port), backlog=4096)
        listener = made.detach()
    return TCPStore(
        place.hostname,
        place.port,
        world_size,
        is_master=rank == 0,
        timeout=timeout,
        master_listen_fd=listener,
    )


def simulated(world_size: int, parallelism: Parallelism = _ALONE) -> Rank:
    """Simulate rank 0 of `world_size` ranks on the CPU: collectives leave tensors unchanged."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    return _placed(torch.device("cpu"), parallelism, 60.0, owner=True)


def _placed(
    device: torch.device, parallelism: Parallelism, deadline_s: float, *, owner: bool
) -> Rank:
    """Create this rank with its meshes, in the open process group."""
    rank, replicas, sequence = dist.get_rank(), parallelism.replicas, parallelism.sequence
    root_mesh, _ = _meshes(device, replicas)
    mesh, tensor_mesh, expert_shards, expert_mesh = root_mesh, None, None, None
    if parallelism.tensor > 1:
        mesh, tensor_mesh = _meshes(device, replicas, layers=parallelism.tensor)
    if parallelism.expert > 1:
        expert_shards, expert_mesh = _meshes(device, replicas, experts=parallelism.expert)
    own = None
    if sequence > 1:
        group, _ = dist.new_subgroups(  # type: ignore[no-untyped-call]
            sequence, timeout=timedelta(seconds=deadline_s)
        )
        own = Slice(number=rank % sequence, count=sequence, group=group)
    return Rank(
        number=rank,
        world_size=dist.get_world_size(),
        device=device,
        mesh=mesh,
        root_mesh=root_mesh,
        owner=owner,
        slice=own,
        tensor_mesh=tensor_mesh,
        expert_mesh=expert_mesh,
        expert_shards=expert_shards,
    )


def _meshes(
    device: torch.device, replicas: int, **shared: int
) -> tuple[DeviceMesh, DeviceMesh | None]:
    """Return the mesh to shard over, and the mesh of ranks that share layers or experts, if any.

    Their dimension names differ, because meshes of the same ranks with the same names are equal.
    """
    sharing = math.prod(shared.values())
    shards = dist.get_world_size() // replicas // sharing
    sizes = {"replicas": replicas, "shards": shards, **shared}
    kept = {name: size for name, size in sizes.items() if size > 1 or name == "shards"}
    whole = init_device_mesh(device.type, tuple(kept.values()), mesh_dim_names=tuple(kept))
    if sharing == 1:
        return whole, None
    return whole[("replicas", "shards") if replicas > 1 else "shards"], whole[next(iter(shared))]
