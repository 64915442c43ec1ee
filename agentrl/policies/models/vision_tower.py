"""Faster forward passes for the vision towers of the Qwen families in transformers.

The results are equal up to rounding.
"""

import sys
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def patch_vision_attention(model: nn.Module) -> None:
    """Patch a model in place to process all images at once, where transformers loops over them."""
    for module in model.modules():
        conv = getattr(module, "proj", None)
        if isinstance(conv, nn.Conv3d) and conv.kernel_size == conv.stride:
            module.forward = MethodType(_embedded, module)
        elif type(module).__name__.endswith("VisionAttention") and hasattr(module, "qkv"):
            module.forward = MethodType(_attended, module)


def _embedded(module: Any, patches: Tensor) -> Tensor:
    """The patch embedding as a matrix product, which is faster than a convolution here."""
    conv = module.proj
    weight = conv.weight.flatten(1)
    return F.linear(patches.reshape(-1, weight.shape[1]).to(weight.dtype), weight, conv.bias)


def _attended(module: Any, hidden_states: Tensor, cu_seqlens: Tensor, **rest: Any) -> Tensor:
    """Attention of equally long images or windows in one call; transformers makes one call each."""
    if module.config._attn_implementation != "sdpa":
        original: Tensor = type(module).forward(module, hidden_states, cu_seqlens, **rest)
        return original
    size, heads = len(hidden_states), module.num_heads
    query, key, value = module.qkv(hidden_states).view(size, 3, heads, -1).unbind(1)
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb_vision
    query, key = rotate(query, key, *rest["position_embeddings"])
    lengths = cu_seqlens.diff()
    distinct = sorted({length for length in lengths.tolist() if length})
    if len(distinct) == 1:
        return _proj(module, _attend(module, query, key, value, distinct[0]))
    parts, indices = [], []
    for length in distinct:
        starts = cu_seqlens[:-1][lengths == length]
        index = (starts[:, None] + torch.arange(length, device=starts.device)).flatten()
        part = [states.index_select(0, index) for states in (query, key, value)]
        parts.append(_attend(module, part[0], part[1], part[2], length))
        indices.append(index)
    return _proj(module, torch.cat(parts).index_select(0, torch.cat(indices).argsort()))


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, length: int) -> Tensor:
    """[rows, heads * head size]; each run of `length` rows attends within itself."""

    def folded(states: Tensor) -> Tensor:
        return states.view(-1, length, *states.shape[1:]).transpose(1, 2)

    attended = F.scaled_dot_product_attention(
        folded(query), folded(key), folded(value), scale=module.scaling
    )
    return attended.transpose(1, 2).flatten(0, 1).flatten(1)


def _proj(module: Any, states: Tensor) -> Tensor:
    projected: Tensor = module.proj(states)
    return projected
