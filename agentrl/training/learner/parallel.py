"""Ranks that train one model: process group, sharding (FSDP2), and whole tensors again.

A single rank goes the same way, with a store in its own memory instead of the network.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from agentrl.training.learner.sequence_parallel import Slice

_LAYERWISE = 100_000_000
"""Parameters from which on the layers are gathered one by one; below, all at once is faster."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Rank:
    """One rank's place among all."""

    number: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    owner: bool
    """True where it made the process group, and so has to end it."""
    slice: Slice | None = None
    """Of every row, where ranks share them; None where it has whole rows."""

    @property
    def group(self) -> int:
        """Which of the `groups` it belongs to: ranks that are given the same rows."""
        return self.number // (self.slice.count if self.slice else 1)

    @property
    def groups(self) -> int:
        """How many groups of ranks there are, each with rows of its own."""
        return self.world_size // (self.slice.count if self.slice else 1)

    @property
    def speaks(self) -> bool:
        """True on one rank of each group: what all of them know of their rows counts once."""
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
        """End the process group, if it is its own; may be called twice."""
        if self.owner and dist.is_initialized():
            dist.destroy_process_group()


def join(
    rank: int = 0,
    world_size: int = 1,
    rendezvous: str | None = None,
    deadline_s: float = 600.0,
    sharing: int = 1,
) -> Rank:
    """Meet the other ranks.

    Args:
        rank: this process, from 0.
        world_size: how many there are.
        rendezvous: `tcp://host:port` that rank 0 listens on; None for a single rank.
        deadline_s: for every collective operation.
        sharing: how many ranks share the tokens of a row; divides `world_size`.
    """
    device = torch.device("cuda", _local_gpu(rank)) if torch.cuda.is_available() else _CPU
    if device.type == "cuda":
        torch.cuda.set_device(device)
    owner = not dist.is_initialized()
    if owner:
        where = {"init_method": rendezvous} if rendezvous else {"store": HashStore()}
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
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


_CPU = torch.device("cpu")


def _local_gpu(rank: int) -> int:
    # Ray shows each actor its own GPU alone; elsewhere every rank sees them all.
    return rank % torch.cuda.device_count()


def shard(
    root: nn.Module,
    layers: Iterator[nn.Module],
    rank: Rank,
    dtype: torch.dtype,
    offload: bool = False,
) -> None:
    """Spread a module's parameters over the ranks, in place.

    Args:
        root: called as a whole in every forward pass.
        layers: its repeated blocks, each gathered when it is used, if the model is large.
        rank: this rank.
        dtype: of the computation; masters and gradients stay as the module's.
        offload: keep the shards in the memory of the CPU.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    away = CPUOffloadPolicy() if offload and rank.device.type != "cpu" else OffloadPolicy()
    here = {p for p in root.parameters() if not p.is_floating_point()}  # in 4 bits
    modules = [root]
    if sum(p.numel() for p in root.parameters()) >= _LAYERWISE:
        modules = [*layers, root]
    for module in modules:
        wrapped = fully_shard(
            module,
            mesh=rank.mesh,
            mp_policy=policy if dtype != torch.float32 else MixedPrecisionPolicy(),
            offload_policy=away,
            ignored_params=here,
            reshard_after_forward=rank.world_size > 1 and module is not root,
        )
        # Losses are weighted over the global batch already: gradients are summed, not averaged.
        wrapped.set_gradient_divide_factor(1.0)
        if rank.device.type == "cpu":
            wrapped.set_force_sum_reduction_for_comms(True)
    # The first gather may move the shards to padded storage; after it they stay where they are.
    root.unshard()  # type: ignore[operator]
    root.reshard()  # type: ignore[operator]


def reshard(root: nn.Module) -> None:
    """Let go of what a forward pass gathered, where no backward pass will do so."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def local(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def whole(shard: Tensor, like: Tensor) -> Tensor:
    """The full tensor of which every rank holds a shard, on the CPU; a collective call.

    Args:
        shard: this rank's.
        like: a parameter that is spread in the same way.
    """
    found = spread(shard.detach(), like)
    return (found.full_tensor() if isinstance(found, DTensor) else found).cpu().clone()


def spread(shard: Tensor, like: Tensor) -> Tensor:
    """A shard as what it is a part of, sharing its memory.

    Args:
        shard: this rank's.
        like: a parameter that is spread in the same way.
    """
    if not isinstance(like, DTensor):
        return shard
    return DTensor.from_local(
        shard, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


@torch.no_grad()
def scatter(full: Tensor, shard: Tensor, like: Tensor) -> None:
    """Write this rank's part of a full tensor, which every rank has, into its shard.

    Args:
        full: of the shape of `like`.
        shard: this rank's, changed in place.
        like: a parameter that is spread in the same way.
    """
    if isinstance(like, DTensor):
        full = full.to(device=shard.device, dtype=shard.dtype)
        part = distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
        full = part.to_local()
    shard.copy_(full)
