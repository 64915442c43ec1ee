"""Sharding of a module's parameters (FSDP2), and gathering of full tensors."""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from agentrl.policies.models.stored_weights import WeightSlice
from agentrl.training.learner.parallel.process_group import Rank

_LAYERWISE = 100_000_000
"""Models with at least this many parameters are sharded layer by layer; below, the model as a
whole is faster."""


def shard(
    root: nn.Module,
    layers: Iterable[nn.Module],
    parts: Iterable[nn.Module],
    rank: Rank,
    dtype: torch.dtype,
    replicated: Collection[nn.Parameter] = (),
    offload: bool = False,
) -> None:
    """Shard a module's parameters over the ranks, in place.

    Shards of parameters on the meta device are allocated, but not filled.

    Args:
        root: the module that forward passes call.
        layers: its repeated blocks; gathered one at a time if the model is large.
        parts: other modules that it calls, which are then gathered apart, too.
        rank: process group and device of this rank.
        dtype: compute dtype; master weights and gradients keep the module's.
        replicated: parameters to leave alone.
        offload: whether shards stay in CPU memory.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    offloads = offload and rank.device.type != "cpu"
    ignored = {*replicated}
    large = sum(p.numel() for p in root.parameters() if p not in ignored) >= _LAYERWISE
    blocks = [*layers] if large or rank.tensor_mesh is not None else []
    modules = [*blocks, *(parts if large else ()), root]
    # Experts first: FSDP leaves to an outer module what no inner one has taken.
    experts = {m for m in root.modules() if _on(rank.expert_mesh, m.parameters(recurse=False))}
    for module in (*experts, *modules):
        is_divided = module in experts or module in blocks
        layer_mesh = rank.expert_shards if module in experts else rank.mesh
        wrapped = fully_shard(
            module,
            mesh=layer_mesh if is_divided else rank.root_mesh,
            mp_policy=policy if dtype != torch.float32 else MixedPrecisionPolicy(),
            offload_policy=CPUOffloadPolicy() if offloads else OffloadPolicy(),
            ignored_params=ignored,
            # On a single rank this frees copies in the compute dtype.
            reshard_after_forward=module is not root,
        )
        # Losses are already weighted over the global batch: gradients are summed, not averaged,
        # except over the ranks of a tensor-parallel group, which compute the same ones.
        wrapped.set_gradient_divide_factor(1.0 if is_divided else float(rank.tensor))
        # gloo has no reduction that multiplies by a factor, which FSDP would use.
        if rank.device.type == "cpu":
            wrapped.set_force_sum_reduction_for_comms(True)
    device = "cpu" if offload else rank.device
    ids = {id(parameter) for parameter in ignored}
    root._apply(  # type: ignore[no-untyped-call]
        lambda t: torch.empty_like(t, device=device) if t.is_meta and id(t) not in ids else t
    )
    # The first gather may move the shards to padded storage; later ones leave them in place.
    root.unshard()  # type: ignore[operator]
    root.reshard()  # type: ignore[operator]


def _on(mesh: DeviceMesh | None, parameters: Iterator[nn.Parameter]) -> bool:
    """Whether there are parameters that are divided over a mesh."""
    return any(isinstance(p, DTensor) and p.device_mesh == mesh for p in parameters)


def reshard(root: nn.Module) -> None:
    """Free what a forward pass gathered, if no backward pass follows to do so."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def local_shard(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def num_copies(tensor: Tensor) -> int:
    """Number of ranks with the same shard of a parameter; a plain tensor is the rank's own."""
    if not isinstance(tensor, DTensor):
        return 1
    dims = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    shards = math.prod(size for size, place in dims if not place.is_replicate())
    return dist.get_world_size() // shards


@torch.no_grad()
def gather_full(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The full tensor, gathered from every rank's shard; a collective call.

    Args:
        like: a parameter. One that is not sharded is returned as it is, as is one of a single rank.
        dtype: converts the shards before they are gathered; None keeps theirs.
    """
    shard = local_shard(like).detach()
    found = as_dtensor(shard if dtype is None else shard.to(dtype), like)
    if not isinstance(found, DTensor):
        return found
    # torch warns of gathering over several dimensions at once.
    for dim in range(found.device_mesh.ndim):
        placements = [*found.placements]
        placements[dim] = Replicate()
        found = found.redistribute(placements=placements)
    return found.to_local()


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
        # Matrices; tensor parallelism may divide their columns.
        dims = zip(like.device_mesh.shape, like.placements, strict=True)
        parts = math.prod(size for size, place in dims if place.is_shard(1))
        shape = torch.Size((like.shape[0], shard.shape[1] * parts))
    strides = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(shape, strides, shard.dtype)
    spec = DTensorSpec(like.device_mesh, like.placements, meta)
    found: Tensor = DTensor(shard, spec, requires_grad=False)  # type: ignore[no-untyped-call]
    return found


@torch.no_grad()
def write_local_shard(
    full: WeightSlice, parameter: Tensor, dtype: torch.dtype | None = None
) -> None:
    """Write this rank's part of a full tensor into a parameter.

    Args:
        full: of the shape of the parameter, the same on every rank.
        parameter: sharded or not; its shard is overwritten.
        dtype: converts the part to this dtype first; None converts it to the parameter's alone.
    """
    shard = local_shard(parameter)
    if shard.numel():
        part = full[_local_index(parameter)]
        shard.copy_(part if dtype is None else part.to(dtype))


def _local_index(parameter: Tensor) -> Any:
    """The index of this rank's shard in the full tensor."""
    if not isinstance(parameter, DTensor):
        return ...
    sizes, offsets = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
