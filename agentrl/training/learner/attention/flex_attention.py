"""FlexAttention in a Hugging Face model's decoder: skips masked blocks and stores no full mask.

Shapes: B rows; L columns; H query heads; K key and value heads; D head dimension.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention
from torch.nn.attention.flex_attention import BlockMask

from agentrl.errors import ConfigError

Attended = tuple[Tensor, Tensor | None]


def prepare(
    policy: nn.Module, attention: str, device: torch.device, *, shares_prefixes: bool = True
) -> bool:
    """Let a model's decoder use FlexAttention whenever it is given a `BlockMask`.

    Other masks are computed as before. transformers has its own FlexAttention, but not for every
    family, and without a fallback to SDPA for rows that need no mask.

    Args:
        policy: a Hugging Face model; changed in place.
        attention: `model.attention`.
        device: the model's device. On the CPU, FlexAttention has no backward pass and is used only
            if `attention` is `flex`.
        shares_prefixes: whether rows may hold trees; if not, flash-attn needs no masks, because it
            separates sequences by their lengths.

    Returns:
        Whether to pass block masks to the decoder.

    Raises:
        ConfigError: `attention` is `flex`, but the model has its own attention implementation.
    """
    from transformers import AttentionInterface

    wanted = attention in ("auto", "flash_attention_2") and device.type == "cuda"
    if not wanted and attention != "flex":
        return False
    model: Any = policy
    settings = model.config.get_text_config()
    if not (model._supports_attention_backend and model._supports_sdpa):
        if attention == "flex":
            raise ConfigError(
                f"model.attention=flex: {settings.model_type!r} has a custom attention that cannot "
                "be replaced; set model.attention=auto"
            )
        return False
    if settings._attn_implementation == "eager":
        settings._attn_implementation = "sdpa"
    name = settings._attn_implementation
    if "flash" in name and not shares_prefixes:
        return False
    found = AttentionInterface()[name]
    if not isinstance(found, _BlockAttention):
        AttentionInterface.register(name, _BlockAttention(found))
    return True


class _BlockAttention:
    """A transformers attention function that also accepts block masks."""

    def __init__(self, otherwise: Callable[..., Attended]) -> None:
        self._otherwise = otherwise

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | BlockMask | None,
        **rest: Any,
    ) -> Attended:
        if not isinstance(attention_mask, BlockMask):
            return self._otherwise(module, query, key, value, attention_mask, **rest)
        return attend(
            query,
            key,
            value,
            attention_mask,
            scaling=rest.get("scaling"),
            softcap=rest.get("softcap"),
            dropout=rest.get("dropout", 0.0),
        ).transpose(1, 2).contiguous(), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: BlockMask,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention that skips masked blocks.

    Args:
        query: [B, H, L, D]
        key: [B, K, L, D]; K divides H.
        value: [B, K, L, D]
        mask: block mask of B rows.
        scaling: factor applied to the logits; None for D ** -0.5.
        softcap: limit on the logits' magnitude, applied with tanh as in Gemma 2.
        dropout: must be 0; FlexAttention does not support dropout.

    Returns:
        [B, H, L, D]

    Raises:
        ConfigError: the model uses attention dropout.
    """
    if dropout:
        raise ConfigError(
            f"model.attention: FlexAttention cannot apply the model's attention_dropout={dropout};"
            " set model.attention=sdpa"
        )
    compute: Any = flex_attention.flex_attention
    if query.device.type != "cpu" and not torch.compiler.is_compiling():
        compute = _compiled()
    found: Tensor = compute(
        query,
        key,
        value,
        score_mod=None if softcap is None else _capped(softcap),
        block_mask=mask,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return found


@cache
def _capped(softcap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, *place: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return capped


@cache
def _compiled() -> Callable[..., Tensor]:
    """Return FlexAttention compiled to a kernel; uncompiled, it would store all logits."""
    # Compile variants for each kind of mask, with and without gradient, and for short rows.
    whole: Any = flex_attention.flex_attention
    found: Callable[..., Tensor] = torch.compile(whole, dynamic=True, recompile_limit=64)  # type: ignore[call-overload]
    return found
