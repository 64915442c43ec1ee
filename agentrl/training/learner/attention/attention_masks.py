"""Attention masks for rows that hold several sequences or images.

Shapes: B rows; L padded tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from agentrl.errors import ConfigError

BLOCK = 128
"""Side of a block mask's blocks, in tokens."""

_FULL, _SLIDING = "full_attention", "sliding_attention"


def check_layers(settings: Any) -> None:
    """Check that a decoder has only layers for which masks can be built.

    Raises:
        ConfigError: the decoder has other layers.
    """
    if others := {*(getattr(settings, "layer_types", None) or ())} - {_FULL, _SLIDING}:
        raise ConfigError(
            f"{settings.model_type!r} has layers with {', '.join(sorted(others))}, which the "
            f"learner does not support; it supports {_FULL} and {_SLIDING}"
        )


def is_causal(settings: Any) -> bool:
    """Whether one sequence per row needs no mask: causal layers only, without window or cap."""
    return _window(settings) is None and getattr(settings, "attn_logit_softcapping", None) is None


def build(
    ends: Tensor, positions: Tensor, images: Tensor | None, settings: Any, *, blocks: bool = False
) -> Tensor | BlockMask | dict[str, Tensor] | dict[str, BlockMask]:
    """Build a batch's attention masks in the form that transformers' decoders take.

    Args:
        ends: int64[B, L], see `Batch.subtree_ends`.
        positions: int64[..., B, L], position of each token in its sequence.
        images: bool[B, L], True on image tokens, which attend to each other in both directions;
            None for a decoder that is causal everywhere.
        settings: the decoder's configuration.
        blocks: whether the attention is FlexAttention.

    Returns:
        bool[B, 1, L, L], True where query (dim 2) attends to key (dim 3); for eager attention, the
        bias added to the logits; for FlexAttention, a block mask. A decoder with several kinds of
        layers gets one mask for each kind.
    """
    numbers = None if images is None else _image_numbers(images)
    if positions.dim() > 2:
        positions = positions[0]

    def mask(window: int | None) -> Any:
        if blocks:
            return block_mask(ends, positions, numbers, window)
        return _dense(ends, positions, numbers, window, settings._attn_implementation == "eager")

    window = _window(settings)
    if window is None or not getattr(settings, "layer_types", None):
        found: Tensor | BlockMask = mask(window)
        return found
    return {_FULL: mask(None), _SLIDING: mask(window)}


def _window(settings: Any) -> int | None:
    """Return the sliding window's size in tokens; None if no layer has a window."""
    kinds = getattr(settings, "layer_types", None)
    return None if kinds and _SLIDING not in kinds else getattr(settings, "sliding_window", None)


def _dense(
    ends: Tensor, positions: Tensor, numbers: Tensor | None, window: int | None, eager: bool
) -> Tensor:
    mask = causal_mask(ends)
    if window is not None:
        mask &= positions[:, None, :, None] - positions[:, None, None, :] < window
    if numbers is not None:
        is_same = numbers[:, None, :, None] == numbers[:, None, None, :]
        mask |= is_same & (numbers > 0)[:, None, :, None]
    if not eager:
        return mask
    added = torch.zeros_like(mask, dtype=torch.float32)
    return added.masked_fill(~mask, torch.finfo(torch.float32).min)


def block_mask(
    ends: Tensor,
    positions: Tensor | None = None,
    numbers: Tensor | None = None,
    window: int | None = None,
) -> BlockMask:
    """Build a block mask from the minimum and maximum of each block of tokens.

    torch's `create_block_mask` would compute the whole mask. Here, a block that is fully visible or
    fully hidden may count as partly masked, which is safe: FlexAttention evaluates the mask in it.

    Args:
        ends: int64[B, L], see `Batch.subtree_ends`.
        positions: int64[B, L], position of each token in its sequence; only for a window.
        numbers: int64[B, L], ascending number of each token's image, from 1; 0 outside images.
            Tokens of an image attend to each other in both directions.
        window: how far back tokens attend; None for no limit.
    """
    length = ends.shape[1]
    starts = torch.arange(0, length, BLOCK, device=ends.device)
    before = starts[:, None] > starts[None, :]
    low, high = _extremes(ends)
    visible = (before & (high[:, None, :] > starts[:, None])) | (starts[:, None] == starts)
    # A last query block that extends beyond the row never counts as whole; torch does the same.
    whole = before & (low[:, None, :] >= starts[:, None] + BLOCK)
    if window is not None:
        assert positions is not None, "a window is counted in positions"
        low, high = _extremes(positions)
        visible = visible & (low[:, :, None] - high[:, None, :] < window)
        whole = whole & (high[:, :, None] - low[:, None, :] < window)
    if numbers is not None:
        first = _extremes(torch.where(numbers > 0, numbers, length + 1))[0]
        last = _extremes(numbers)[1]
        visible = visible | (
            (first[:, :, None] <= last[:, None, :]) & (first[:, None, :] <= last[:, :, None])
        )

    def attends(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = (key <= query) & (query < ends[row, key])
        if window is not None and positions is not None:
            found = found & (positions[row, query] - positions[row, key] < window)
        if numbers is not None:
            own = numbers[row, query]
            found = found | ((own == numbers[row, key]) & (own > 0))
        return found

    return BlockMask.from_kv_blocks(
        *_ordered(visible & ~whole),
        *_ordered(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=attends,
        seq_lengths=(length, length),
    )


def _extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of [B, L] values in each block of tokens."""
    padding = -values.shape[1] % BLOCK
    # Pad with the row's last value, which changes no extreme.
    padded = torch.cat([values, values[:, -1:].expand(-1, padding)], dim=1)
    low, high = padded.view(len(values), -1, BLOCK).aminmax(dim=2)
    return low, high


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return each query block's number of set key blocks, and all key blocks, set ones first.

    Args:
        blocks: bool[B, query blocks, key blocks]
    """
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[:, None], order.int()[:, None]


def causal_mask(ends: Tensor) -> Tensor:
    """Return bool[B, 1, L, L], True where query (dim 2) attends to key (dim 3).

    Args:
        ends: int64[B, L], see `Batch.subtree_ends`.
    """
    columns = torch.arange(ends.shape[1], device=ends.device)
    return (columns[None, :] <= columns[:, None]) & (columns[:, None] < ends[:, None, None, :])


def _image_numbers(images: Tensor) -> Tensor:
    """Return int64[B, L], the number of each token's image in its row, from 1; 0 outside images."""
    starts = images & ~F.pad(images[:, :-1], (1, 0))
    return torch.where(images, starts.long().cumsum(-1), 0)


def sequence_bounds(ends: Tensor) -> dict[str, Any]:
    """Return the bounds of each sample in a row, as transformers passes them to flash-attn.

    Args:
        ends: int64[1, L], see `Batch.subtree_ends`; samples follow each other without padding.
    """
    assert len(ends) == 1, f"variable-length attention takes a single row, not {len(ends)}"

    bounds = F.pad(torch.unique_consecutive(ends[0]), (1, 0)).int()
    longest = int(bounds.diff().max())
    return {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }
