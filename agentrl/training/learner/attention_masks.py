"""Which tokens attend to which, where a row holds several sequences or images.

Shapes: B rows; L padded tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from agentrl.errors import ConfigError

_FULL, _SLIDING = "full_attention", "sliding_attention"


def check_layers(settings: Any) -> None:
    """Check that a decoder has only layers for which masks can be built.

    Args:
        settings: the decoder's configuration.

    Raises:
        ConfigError: it has others.
    """
    if others := {*(getattr(settings, "layer_types", None) or ())} - {_FULL, _SLIDING}:
        raise ConfigError(
            f"{settings.model_type!r} has layers with {', '.join(sorted(others))}, which the "
            f"learner does not support; it supports {_FULL} and {_SLIDING}"
        )


def build(
    ends: Tensor, positions: Tensor, images: Tensor | None, settings: Any
) -> Tensor | dict[str, Tensor]:
    """The attention masks of a batch, as transformers' decoders take them.

    Args:
        ends: int64[B, L], see `Batch.subtree_ends`.
        positions: int64[..., B, L], of each token in its sequence.
        images: bool[B, L], True on the tokens of images, which attend to each other in both
            directions; None for a decoder that is causal everywhere.
        settings: the decoder's configuration.

    Returns:
        [B, 1, L, L], True where query (dim 2) attends to key (dim 3); for eager attention, what is
        added to the logits. A decoder with several kinds of layers gets one for each.
    """
    full = causal_mask(ends)
    within = None if images is None else _same_image(images)
    eager = settings._attn_implementation == "eager"

    def finished(mask: Tensor) -> Tensor:
        mask = mask if within is None else mask | within
        if not eager:
            return mask
        added = torch.zeros_like(mask, dtype=torch.float32)
        return added.masked_fill(~mask, torch.finfo(torch.float32).min)

    window = getattr(settings, "sliding_window", None)
    kinds = getattr(settings, "layer_types", None)
    if window is None or (kinds and _SLIDING not in kinds):
        return finished(full)
    if positions.dim() > 2:
        positions = positions[0]
    near = positions[:, None, :, None] - positions[:, None, None, :] < window
    if not kinds:
        return finished(full & near)
    return {_FULL: finished(full), _SLIDING: finished(full & near)}


def causal_mask(ends: Tensor) -> Tensor:
    """bool[B, 1, L, L]: True where query (dim 2) attends to key (dim 3).

    Args:
        ends: int64[B, L], see `Batch.subtree_ends`.
    """
    columns = torch.arange(ends.shape[1], device=ends.device)
    return (columns[None, :] <= columns[:, None]) & (columns[:, None] < ends[:, None, None, :])


def _same_image(images: Tensor) -> Tensor:
    """bool[B, 1, L, L]: True for two tokens of one image.

    Args:
        images: bool[B, L], True on the tokens of images.
    """
    starts = images & ~F.pad(images[:, :-1], (1, 0))
    number = torch.where(images, starts.long().cumsum(-1), 0)
    same = number[:, None, :, None] == number[:, None, None, :]
    return same & images[:, None, :, None]


def sequence_bounds(ends: Tensor) -> dict[str, Any]:
    """The bounds of each sample in a row, as transformers passes them to flash-attn.

    Args:
        ends: int64[1, L], of samples one after the other, without padding.
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
