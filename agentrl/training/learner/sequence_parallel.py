"""Ranks that share the tokens of each row (DeepSpeed-Ulysses, arXiv:2309.14509).

Each rank computes a slice of the columns. The attention alone needs all of them: before it ranks
exchange heads for tokens, so that each attends with some of the heads over whole rows, and after it
tokens for heads. What every other layer holds is a slice.

Shapes: P ranks share a row; B rows; L columns, of which each rank has l = L / P, rounded up; H
heads, K of keys and values; D values of a head; N places that are asked for, n of them in the
slice.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from agentrl.errors import ConfigError

NAME = "ulysses"
"""Of the attention, as transformers knows it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Slice:
    """The columns of every row that this rank computes."""

    number: int
    """From 0, in the order of the columns."""
    count: int
    """Ranks that share a row."""
    group: dist.ProcessGroup
    """Of these ranks."""

    def width(self, length: int) -> int:
        """Columns of each rank; the last ones may be padding."""
        return -(-length // self.count)

    def padded(self, rows: Tensor, fill: int = 0) -> Tensor:
        """[..., P * l] of [..., L]."""
        length = rows.shape[-1]
        return F.pad(rows, (0, self.width(length) * self.count - length), value=fill)

    def of(self, rows: Tensor) -> Tensor:
        """[..., l] of [..., L]."""
        width = self.width(rows.shape[-1])
        return self.padded(rows).narrow(-1, self.number * width, width)

    def mine(self, places: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Which places stand in the slice, and where.

        Args:
            places: int64[N], flat: row * L + column.
            length: L.

        Returns:
            bool[N], and int64[n], flat: row * l + column in the slice.
        """
        width, columns = self.width(length), places % length
        mine = columns // width == self.number
        return mine, (places // length * width + columns % width)[mine]

    def joined(self, own: Tensor, mine: Tensor) -> Tensor:
        """What all ranks know, each of its places; a collective call.

        The gradient of a loss that every rank computes of all N goes to each place once: on the
        rank that knows it.

        Args:
            own: [..., n]
            mine: bool[N], each place True on one of the ranks.

        Returns:
            [..., N], the same on each of the ranks.
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
        # All ranks have the same loss, not one each: it is not summed over them.
        (mine,) = ctx.saved_tensors
        return gradients[0][..., mine], None, None


class _Exchanged(torch.autograd.Function):
    """[P, ...]: part p goes to rank p, and comes from it. Its own adjoint."""

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
    attention_mask: Tensor | None,
    *,
    ulysses: Slice,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention over whole rows, of slices; a collective call.

    Args:
        module: the model's layer; not used.
        query: [B, H, l, D]
        key: [B, K, l, D]
        value: as `key`.
        attention_mask: bool[B, 1, P * l, P * l], True where a token (third) sees another; None
            where it sees those before it.
        ulysses: this rank's slice.
        dropout: of the attention's weights.
        scaling: of the products; None for D ** -0.5.
        **rest: of other attentions, not used.

    Returns:
        [B, l, H, D], and no weights.
    """
    count = ulysses.count
    # Each rank gets equally many heads of keys and values, those that its queries look at.
    again = math.lcm(key.shape[1], count) // key.shape[1]
    key, value = (states.repeat_interleave(again, dim=1) for states in (key, value))
    blocks = [_by_rank(states, count) for states in (query, key, value)]
    sizes = [block.shape[2] for block in blocks]
    # One exchange for the three: [P, B, heads of a rank, l, D]
    found: Tensor = _Exchanged.apply(  # type: ignore[no-untyped-call]
        torch.cat(blocks, dim=2), ulysses.group
    )
    whole = found.permute(1, 2, 0, 3, 4).flatten(2, 3)
    query, key, value = torch.split(whole, sizes, dim=1)
    if attention_mask is not None and sizes[0] != sizes[1]:
        # With a mask, kernels take as many keys as queries.
        groups = sizes[0] // sizes[1]
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    seen = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        is_causal=attention_mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    parts = seen.reshape(*seen.shape[:2], count, -1, seen.shape[-1]).permute(2, 0, 1, 3, 4)
    own: Tensor = _Exchanged.apply(parts, ulysses.group)  # type: ignore[no-untyped-call]
    return own.permute(1, 3, 0, 2, 4).flatten(2, 3).contiguous(), None


def _by_rank(states: Tensor, count: int) -> Tensor:
    """[P, B, heads of a rank, l, D] of [B, heads, l, D]."""
    return states.reshape(len(states), count, -1, *states.shape[2:]).transpose(0, 1)


def check_heads(heads: int, count: int) -> None:
    """See whether so many ranks can share the heads of an attention.

    Raises:
        ConfigError: they cannot.
    """
    if heads % count:
        raise ConfigError(
            f"train.sequence_parallel={count}: the model has {heads} attention heads, which so "
            f"many ranks cannot share; it must divide {heads}"
        )


def prepare(policy: nn.Module, count: int) -> None:
    """Let the decoder of a Hugging Face model attend over slices, in place.

    Raises:
        ConfigError: its heads cannot be shared, or not all of its layers are an attention over
            whole rows that can be replaced.
    """
    from transformers import AttentionInterface

    model: Any = policy
    config = model.config.get_text_config()
    check_heads(config.num_attention_heads, count)
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    if kinds or not model._supports_attention_backend:
        told = ", ".join(sorted(kinds)) or "attention of its own"
        raise ConfigError(
            f"train.sequence_parallel={count}: layers of {config.model_type!r} with {told} cannot "
            "be shared by ranks; train.sequence_parallel=1 leaves rows whole"
        )
    AttentionInterface.register(NAME, attend)
    config._attn_implementation = NAME
