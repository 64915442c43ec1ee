"""The ranks that train one model: process group, sharding (FSDP2), gathering of full tensors.

A single rank takes the same path, with an in-memory store instead of the network.
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
"""Models with at least this many parameters are sharded layer by layer; below, the model as a
whole is faster."""


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
        deadline_s: for every collective operation.
        sharing: number of ranks that share the tokens of a row; divides `world_size`.
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
    # Under Ray each actor sees only its own GPU; elsewhere every rank sees all of them.
    return rank % torch.cuda.device_count()


def shard(
    root: nn.Module,
    layers: Iterator[nn.Module],
    rank: Rank,
    dtype: torch.dtype,
    offload: bool = False,
) -> None:
    """Shard a module's parameters over the ranks, in place.

    Args:
        root: the module that forward passes call.
        layers: its repeated blocks; gathered one at a time if the model is large.
        rank: this rank.
        dtype: of the computation; master weights and gradients keep the module's.
        offload: whether shards stay in CPU memory.
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
        # Losses are already weighted over the global batch: gradients are summed, not averaged.
        wrapped.set_gradient_divide_factor(1.0)
        if rank.device.type == "cpu":
            wrapped.set_force_sum_reduction_for_comms(True)
    # The first gather may move the shards to padded storage; later ones leave them in place.
    root.unshard()  # type: ignore[operator]
    root.reshard()  # type: ignore[operator]


def reshard(root: nn.Module) -> None:
    """Free what a forward pass gathered, if no backward pass follows to do so."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def local(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def whole(shard: Tensor, like: Tensor) -> Tensor:
    """The full tensor on the CPU, gathered from every rank's shard; a collective call.

    Args:
        shard: this rank's.
        like: a parameter that is sharded in the same way.
    """
    found = spread(shard.detach(), like)
    return (found.full_tensor() if isinstance(found, DTensor) else found).cpu().clone()


def spread(shard: Tensor, like: Tensor) -> Tensor:
    """A shard as a DTensor of the full tensor, sharing its memory.

    Args:
        shard: this rank's.
        like: a parameter that is sharded in the same way; a plain tensor returns the shard.
    """
    if not isinstance(like, DTensor):
        return shard
    return DTensor.from_local(
        shard, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


@torch.no_grad()
def scatter(full: Tensor, shard: Tensor, like: Tensor) -> None:
    """Write this rank's part of a full tensor into its shard.

    Args:
        full: of the shape of `like`, the same on every rank.
        shard: this rank's, overwritten.
        like: a parameter that is sharded in the same way.
    """
    if isinstance(like, DTensor):
        full = full.to(device=shard.device, dtype=shard.dtype)
        part = distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
        full = part.to_local()
    shard.copy_(full)
