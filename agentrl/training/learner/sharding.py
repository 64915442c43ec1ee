"""Sharding of a module's parameters (FSDP2), and gathering of full tensors."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from agentrl.errors import ConfigError
from agentrl.training.learner.process_group import Rank

_LAYERWISE = 100_000_000
"""Models with at least this many parameters are sharded layer by layer; below, the model as a
whole is faster."""


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
        rank: process group and device of this rank.
        dtype: compute dtype; master weights and gradients keep the module's.
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


def local_shard(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def gather_full(shard: Tensor, like: Tensor) -> Tensor:
    """The full tensor on the CPU, gathered from every rank's shard; a collective call.

    Args:
        shard: this rank's shard.
        like: a parameter that is sharded in the same way.
    """
    found = as_dtensor(shard.detach(), like)
    return (found.full_tensor() if isinstance(found, DTensor) else found).cpu().clone()


def as_dtensor(shard: Tensor, like: Tensor) -> Tensor:
    """A shard as a DTensor of the full tensor, sharing its memory.

    Args:
        shard: this rank's shard.
        like: a parameter that is sharded in the same way; a plain tensor returns the shard.
    """
    if not isinstance(like, DTensor):
        return shard
    return DTensor.from_local(
        shard, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


def state_dtensor(shard: Tensor, like: Tensor) -> Tensor:
    """A parameter's state as a DTensor sharded like it, sharing the memory of its shard.

    `DTensor.from_local` would copy a shard in CPU memory to the GPU of the device mesh.

    Args:
        shard: this rank's shard, of the parameter's shape or another with as many rows.
        like: the parameter; a plain tensor returns the shard.
    """
    if not isinstance(like, DTensor):
        return shard
    shape = like.shape
    if shard.shape[1:] != like.to_local().shape[1:]:
        if not all(p.is_shard(0) or p.is_replicate() for p in like.placements):
            raise ConfigError(
                f"optim.moments=8bit: weights must be sharded by rows, not {like.placements}"
            )
        shape = torch.Size((like.shape[0], *shard.shape[1:]))
    strides = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(shape, strides, shard.dtype)
    spec = DTensorSpec(like.device_mesh, like.placements, meta)
    found: Tensor = DTensor(shard, spec, requires_grad=False)  # type: ignore[no-untyped-call]
    return found


@torch.no_grad()
def write_local_shard(full: Tensor, shard: Tensor, like: Tensor) -> None:
    """Write this rank's part of a full tensor into its shard.

    Args:
        full: of the shape of `like`, the same on every rank.
        shard: this rank's shard, overwritten.
        like: a parameter that is sharded in the same way.
    """
    if isinstance(like, DTensor):
        full = full.to(device=shard.device, dtype=shard.dtype)
        part = distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
        full = part.to_local()
    shard.copy_(full)
