"""Vision towers of Qwen's families as transformers has them, with fewer and larger steps.

The numbers are the same but for their last digits.
"""

import sys
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def quicken(model: nn.Module) -> None:
    """Replace, in place, what transformers does picture by picture."""
    for module in model.modules():
        conv = getattr(module, "proj", None)
        if isinstance(conv, nn.Conv3d) and conv.kernel_size == conv.stride:
            module.forward = MethodType(_embedded, module)
        elif type(module).__name__.endswith("VisionAttention") and hasattr(module, "qkv"):
            module.forward = MethodType(_attended, module)


def _embedded(module: Any, patches: Tensor) -> Tensor:
    """A convolution whose kernel is its whole input is a matrix product, and faster as one."""
    conv = module.proj
    weight = conv.weight.flatten(1)
    return F.linear(patches.reshape(-1, weight.shape[1]).to(weight.dtype), weight, conv.bias)


def _attended(module: Any, hidden_states: Tensor, cu_seqlens: Tensor, **rest: Any) -> Tensor:
    """Pictures, or windows, of one size attend at once: transformers calls SDPA for each alone."""
    if module.config._attn_implementation != "sdpa":
        theirs: Tensor = type(module).forward(module, hidden_states, cu_seqlens, **rest)
        return theirs
    size, heads = len(hidden_states), module.num_heads
    query, key, value = module.qkv(hidden_states).view(size, 3, heads, -1).unbind(1)
    turn = sys.modules[type(module).__module__].apply_rotary_pos_emb_vision
    query, key = turn(query, key, *rest["position_embeddings"])
    lengths = cu_seqlens.diff()
    distinct = sorted({length for length in lengths.tolist() if length})
    if len(distinct) == 1:
        return _proj(module, _attend(module, query, key, value, distinct[0]))
    parts, places = [], []
    for length in distinct:
        starts = cu_seqlens[:-1][lengths == length]
        place = (starts[:, None] + torch.arange(length, device=starts.device)).flatten()
        own = [states.index_select(0, place) for states in (query, key, value)]
        parts.append(_attend(module, own[0], own[1], own[2], length))
        places.append(place)
    return _proj(module, torch.cat(parts).index_select(0, torch.cat(places).argsort()))


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, length: int) -> Tensor:
    """[rows, heads * size of a head], each run of `length` rows among themselves."""

    def folded(states: Tensor) -> Tensor:
        return states.view(-1, length, *states.shape[1:]).transpose(1, 2)

    seen = F.scaled_dot_product_attention(
        folded(query), folded(key), folded(value), scale=module.scaling
    )
    return seen.transpose(1, 2).flatten(0, 1).flatten(1)


def _proj(module: Any, states: Tensor) -> Tensor:
    projected: Tensor = module.proj(states)
    return projected
