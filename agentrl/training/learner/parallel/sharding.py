"""Shard a module's parameters (FSDP2), and gather full tensors."""

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
"""Models with at least this many parameters are sharded layer by layer; smaller models are faster
when sharded as a whole."""


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

    Shards of parameters on the meta device are allocated but not filled.

    Args:
        root: the module that forward passes call.
        layers: repeated blocks of `root`; gathered one at a time if the model is large.
        parts: other modules of `root` that are gathered separately if the model is large.
        rank: process group and device of this rank.
        dtype: compute dtype; master weights and gradients keep the module's dtype.
        replicated: parameters that are not sharded.
        offload: whether shards stay in CPU memory.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    offloads = offload and rank.device.type != "cpu"
    ignored = {*replicated}
    large = sum(p.numel() for p in root.parameters() if p not in ignored) >= _LAYERWISE
    blocks = [*layers] if large or rank.tensor_mesh is not None else []
    modules = [*blocks, *(parts if large else ()), root]
    # Shard experts first: an outer FSDP module takes all parameters that are not in an inner one.
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
            # Even on a single rank, resharding frees the copies of weights in the compute dtype.
            reshard_after_forward=module is not root,
        )
        # Losses are already weighted over the global batch, so sum gradients instead of averaging,
        # except over the ranks of a tensor-parallel group, which compute the same gradients.
        wrapped.set_gradient_divide_factor(1.0 if is_divided else float(rank.tensor))
        # FSDP would use a reduction that multiplies by a factor, which gloo does not have.
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
    """Whether any parameter is divided over a mesh."""
    return any(isinstance(p, DTensor) and p.device_mesh == mesh for p in parameters)


def reshard(root: nn.Module) -> None:
    """Free the weights that a forward pass gathered, if no backward pass follows."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def num_copies(tensor: Tensor) -> int:
    """Return the number of ranks with the same shard of a parameter; 1 for a plain tensor."""
    if not isinstance(tensor, DTensor):
        return 1
    dims = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    shards = math.prod(size for size, place in dims if not place.is_replicate())
    return dist.get_world_size() // shards


@torch.no_grad()
def gather_full(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Gather the full tensor from every rank's shard; a collective call.

    Args:
        like: a parameter. Returned as it is if it is not sharded or there is a single rank.
        dtype: dtype to convert shards to before gathering them; None keeps their dtype.
    """
    shard = local_shard(like).detach()
    found = as_dtensor(shard if dtype is None else shard.to(dtype), like)
    if not isinstance(found, DTensor):
        return found
    # torch warns about gathering over several dimensions at once.
    for dim in range(found.device_mesh.ndim):
        placements = [*found.placements]
        placements[dim] = Replicate()
        found = found.redistribute(placements=placements)
    return found.to_local()


def as_dtensor(shard: Tensor, like: Tensor) -> Tensor:
    """Wrap a shard in a DTensor of the full tensor, sharing its memory.

    Args:
        shard: this rank's shard.
        like: a parameter that is sharded in the same way; if it is a plain tensor, `shard` is
            returned.
    """
    if not isinstance(like, DTensor):
        return shard
    return DTensor.from_local(
        shard, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


def state_dtensor(shard: Tensor, like: Tensor) -> Tensor:
    """Wrap a shard of a parameter's state in a DTensor sharded like the parameter, sharing memory.

    `DTensor.from_local` would copy a shard in CPU memory to the GPU of the device mesh.

    Args:
        shard: this rank's shard, of the parameter's shape or another with as many rows.
        like: the parameter; if it is a plain tensor, `shard` is returned.
    """
    if not isinstance(like, DTensor):
        return shard
    shape = like.shape
    if shard.shape[1:] != like.to_local().shape[1:]:
        # These are matrices; tensor parallelism may divide their columns.
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
        full: tensor of the parameter's shape, the same on every rank.
        parameter: sharded or not; its shard is overwritten.
        dtype: dtype to convert the part to before converting it to the parameter's dtype; None
            skips the first conversion.
    """
    shard = local_shard(parameter)
    if shard.numel():
        part = full[_local_index(parameter)]
        shard.copy_(part if dtype is None else part.to(dtype))


def _local_index(parameter: Tensor) -> Any:
    """Return the index of this rank's shard in the full tensor."""
    if not isinstance(parameter, DTensor):
        return ...
    sizes, offsets = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
