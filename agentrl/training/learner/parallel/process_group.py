"""One rank of the learner: process group, device and collective operations.

A single rank takes the same path, with an in-memory store instead of the network.
"""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from agentrl import accelerators
from agentrl.training.learner.parallel.sequence_parallel import Slice


@dataclass(slots=True, kw_only=True, frozen=True)
class Rank:
    """One rank of the learner, and its collective operations."""

    number: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    owner: bool
    """Whether this rank created the process group, and so destroys it."""
    slice: Slice | None = None
    """Its columns of every row under sequence parallelism; None without."""

    @property
    def group(self) -> int:
        """Index of its sequence-parallel group: the ranks that work on the same rows."""
        return self.number // (self.slice.count if self.slice else 1)

    @property
    def groups(self) -> int:
        """Number of sequence-parallel groups, each with its own rows."""
        return self.world_size // (self.slice.count if self.slice else 1)

    @property
    def is_group_leader(self) -> bool:
        """True on one rank of each group, which counts what all of its ranks computed."""
        return self.slice is None or self.slice.number == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def max(self, values: Tensor) -> Tensor:
        """The elementwise maximum over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def leave(self) -> None:
        """Destroy the process group if this rank created it; may be called twice."""
        if self.owner and dist.is_initialized():
            dist.destroy_process_group()


def join(
    rank: int = 0,
    world_size: int = 1,
    rendezvous: str | None = None,
    deadline_s: float = 600.0,
    sharing: int = 1,
) -> Rank:
    """Join the process group.

    Args:
        rank: this process, from 0.
        world_size: number of ranks.
        rendezvous: `tcp://host:port` that rank 0 listens on; None for a single rank.
        deadline_s: timeout of every collective operation.
        sharing: number of ranks that share the tokens of a row; divides `world_size`.
    """
    # Under Ray each actor sees only its own accelerator; elsewhere every rank sees all of them.
    device = accelerators.device(rank)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    owner = not dist.is_initialized()
    if owner:
        where = {"init_method": rendezvous} if rendezvous else {"store": HashStore()}
        dist.init_process_group(
            _backend(device),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=deadline_s),
            **where,
        )
    assert dist.get_world_size() == world_size, "another process group is open in this process"
    return Rank(
        number=rank,
        world_size=world_size,
        device=device,
        mesh=init_device_mesh(device.type, (world_size,)),
        owner=owner,
        slice=_slice(rank, sharing, deadline_s) if sharing > 1 else None,
    )


def _slice(rank: int, sharing: int, deadline_s: float) -> Slice:
    group, _ = dist.new_subgroups(  # type: ignore[no-untyped-call]
        sharing, timeout=timedelta(seconds=deadline_s)
    )
    return Slice(number=rank % sharing, count=sharing, group=group)


def _backend(device: torch.device) -> str:
    """Of collective operations: gloo on the CPU, and the accelerator's own, such as nccl."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
