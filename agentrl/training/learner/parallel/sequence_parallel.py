"""Sequence parallelism: ranks that share each row's tokens (DeepSpeed-Ulysses, arXiv:2309.14509).

Each rank computes a slice of the columns. Only attention needs whole rows: before it, an all-to-all
exchanges tokens for heads, so that each rank attends over whole rows with some of the heads; after
it, a second all-to-all exchanges them back. All other layers work on slices.

Shapes: P ranks share a row; B rows; L columns, of which each rank has l = L / P, rounded up; H
query heads; K key and value heads; D head dimension; N positions in a batch, n of them in the
slice.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from agentrl.errors import ConfigError
from agentrl.training.learner.attention import flex_attention

NAME = "ulysses"
"""Name under which the attention is registered with transformers."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Slice:
    """The columns of every row that this rank computes."""

    number: int
    """Index of the slice, in the order of the columns."""
    count: int
    """Number of ranks that share a row."""
    group: dist.ProcessGroup
    """The process group of these ranks."""

    def width(self, length: int) -> int:
        """Return the number of columns per rank; the last columns may be padding."""
        return -(-length // self.count)

    def padded(self, rows: Tensor, fill: int = 0) -> Tensor:
        """Pad rows from [..., L] to [..., P * l]."""
        length = rows.shape[-1]
        return F.pad(rows, (0, self.width(length) * self.count - length), value=fill)

    def of(self, rows: Tensor) -> Tensor:
        """Return this rank's columns, [..., l], of rows [..., L]."""
        width = self.width(rows.shape[-1])
        return self.padded(rows).narrow(-1, self.number * width, width)

    def mine(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Find the positions that lie in the slice.

        Args:
            positions: int64[N], flat positions: row * L + column.
            length: L.

        Returns:
            bool[N], True for positions in the slice; and int64[n], their flat positions in the
            slice: row * l + column.
        """
        width, columns = self.width(length), positions % length
        mine = columns // width == self.number
        return mine, (positions // length * width + columns % width)[mine]

    def joined(self, own: Tensor, mine: Tensor) -> Tensor:
        """Combine the values of all ranks; a collective call.

        Every rank may compute the same loss from the result: each position's gradient goes only to
        the rank that owns the position.

        Args:
            own: [..., n], values of this rank's positions.
            mine: bool[N], True on exactly one rank for each position.

        Returns:
            [..., N], all values; the same on every rank.
        """
        return _Joined.apply(own, mine, self.group)  # type: ignore[no-any-return,no-untyped-call]


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, mine: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.save_for_backward(mine)
        whole = own.new_zeros((*own.shape[:-1], len(mine)))
        whole[..., mine] = own
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # The ranks compute the same loss redundantly, so gradients must not be summed over them.
        (mine,) = ctx.saved_tensors
        return gradients[0][..., mine], None, None


class _Exchanged(torch.autograd.Function):
    """All-to-all of [P, ...]: part p is exchanged with rank p. The operation is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _exchange(parts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _exchange(gradients[0], ctx.group), None


def _exchange(parts: Tensor, group: dist.ProcessGroup) -> Tensor:
    parts = parts.contiguous()
    found = torch.empty_like(parts)
    dist.all_to_all_single(found, parts, group=group)
    return found


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    *,
    ulysses: Slice,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention over whole rows, given slices; a collective call.

    Args:
        module: attention layer of the model; not used.
        query: [B, H, l, D]
        key: [B, K, l, D]
        value: [B, K, l, D]
        attention_mask: bool[B, 1, P * l, P * l], True where query (dim 2) attends to key (dim 3),
            or a block mask; None for causal attention.
        ulysses: this rank's slice.
        dropout: dropout of the attention weights.
        scaling: factor applied to the logits; None for D ** -0.5.
        **rest: arguments of other attention implementations; not used.

    Returns:
        [B, l, H, D], and None for the attention weights.
    """
    count = ulysses.count
    # Repeat key and value heads so that each rank gets the heads its query heads attend to.
    repeats = math.lcm(key.shape[1], count) // key.shape[1]
    key, value = (states.repeat_interleave(repeats, dim=1) for states in (key, value))
    blocks = [_by_rank(states, count) for states in (query, key, value)]
    sizes = [block.shape[2] for block in blocks]
    # Exchange all three at once: [P, B, heads of a rank, l, D]
    found: Tensor = _Exchanged.apply(  # type: ignore[no-untyped-call]
        torch.cat(blocks, dim=2), ulysses.group
    )
    whole = found.permute(1, 2, 0, 3, 4).flatten(2, 3)
    query, key, value = torch.split(whole, sizes, dim=1)
    if isinstance(attention_mask, BlockMask):
        seen = flex_attention.attend(
            query, key, value, attention_mask, scaling=scaling, dropout=dropout
        )
    else:
        seen = _attend_densely(query, key, value, attention_mask, dropout, scaling)
    parts = seen.reshape(*seen.shape[:2], count, -1, seen.shape[-1]).permute(2, 0, 1, 3, 4)
    own: Tensor = _Exchanged.apply(parts, ulysses.group)  # type: ignore[no-untyped-call]
    return own.permute(1, 3, 0, 2, 4).flatten(2, 3).contiguous(), None


def _attend_densely(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
) -> Tensor:
    if mask is not None and query.shape[1] != key.shape[1]:
        # With a mask, the fused kernels need as many key heads as query heads.
        groups = query.shape[1] // key.shape[1]
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _by_rank(states: Tensor, count: int) -> Tensor:
    """Split heads over ranks: [B, heads, l, D] to [P, B, heads per rank, l, D]."""
    return states.reshape(len(states), count, -1, *states.shape[2:]).transpose(0, 1)


def check_heads(heads: int, count: int) -> None:
    """Check that attention heads can be split evenly over ranks.

    Raises:
        ConfigError: the heads cannot be split evenly.
    """
    if heads % count:
        raise ConfigError(
            f"train.sequence_parallel={count} must divide the model's {heads} attention heads"
        )


def prepare(policy: nn.Module, count: int) -> None:
    """Replace the attention of a Hugging Face model's decoder, in place.

    Raises:
        ConfigError: the heads cannot be split evenly, or some layers do not use full attention.
    """
    from transformers import AttentionInterface

    model: Any = policy
    config = model.config.get_text_config()
    check_heads(config.num_attention_heads, count)
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    if kinds or not model._supports_attention_backend:
        obstacle = ", ".join(sorted(kinds)) or "a custom attention"
        raise ConfigError(
            f"train.sequence_parallel={count}: {config.model_type!r} has layers with {obstacle}, "
            "which do not support it; set train.sequence_parallel=1"
        )

    AttentionInterface.register(NAME, attend)
    config._attn_implementation = NAME
