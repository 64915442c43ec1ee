"""Frozen base weights in 4 bits (QLoRA, arXiv:2305.14314), by bitsandbytes.

Only this module imports bitsandbytes (extra `qlora`). The weights are replicated,
not sharded.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_FORMAT = "nf4"
_BLOCK = 64
"""Number of weights that share a scale."""
_SCALES = ".absmax"


def quantize(policy: nn.Module, names: Iterable[str]) -> None:
    """Replace linear layers by 4-bit ones, in place; they are quantized when moved to a device.

    Args:
        policy: the model, with its weights loaded.
        names: dotted names of the layers.
    """
    from bitsandbytes import nn as bnb

    for name in names:
        plain = policy.get_submodule(name)
        assert isinstance(plain, nn.Linear)
        made: Any = bnb.Linear4bit(  # type: ignore[no-untyped-call,attr-defined]
            plain.in_features,
            plain.out_features,
            bias=False,
            compute_dtype=plain.weight.dtype,
            compress_statistics=False,
            quant_type=_FORMAT,
            device="meta",
        )
        made.weight = bnb.Params4bit(  # type: ignore[attr-defined]
            plain.weight.data,
            requires_grad=False,
            compress_statistics=False,
            quant_type=_FORMAT,
            blocksize=_BLOCK,
            module=made,
        )
        made.bias = plain.bias
        # Otherwise it repacks its weights for some CPUs, in a layout that we could not save.
        made.support_avx512bf16_for_cpu = False
        policy.set_submodule(name, made)


def state_of(parameter: nn.Parameter) -> Any:
    """The quantization state of a 4-bit weight; None for any other parameter."""
    return getattr(parameter, "quant_state", None)


def shape_of(parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of the weight, before quantization."""
    state = state_of(parameter)
    return tuple(parameter.shape if state is None else state.shape)


def whole(parameter: nn.Parameter) -> Tensor:
    """A 4-bit weight, dequantized to float32 on the CPU."""
    from bitsandbytes.functional import dequantize_4bit

    found: Tensor = dequantize_4bit(parameter.data, state_of(parameter))
    return found.float().cpu()


@torch.no_grad()
def take(parameter: nn.Parameter, full: Tensor) -> None:
    """Quantize a full weight into a 4-bit parameter; precision is lost."""
    from bitsandbytes.functional import quantize_4bit

    state = state_of(parameter)
    data, made = quantize_4bit(
        full.to(parameter.device, state.dtype), blocksize=_BLOCK, quant_type=_FORMAT
    )
    parameter.data.copy_(data.view_as(parameter.data))
    state.absmax.copy_(made.absmax)


def opened(
    tensors: Mapping[str, Tensor], shape_of_name: Callable[[str], Sequence[int]]
) -> dict[str, Tensor]:
    """Dequantize the tensors that `state_tensors` named, to float32.

    Args:
        tensors: by name; those that are not in 4 bits are returned unchanged.
        shape_of_name: the shape of a weight before quantization, by name.
    """
    found = {name: t for name, t in tensors.items() if not name.endswith(_SCALES)}
    for name in tensors.keys() - found.keys():
        weight = name.removesuffix(_SCALES)
        found[weight] = _opened(tensors[weight], tensors[name], shape_of_name(weight))
    return found


def shapes(
    kept: Mapping[str, tuple[int, ...]], shape_of_name: Callable[[str], tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The shapes that `opened` would return.

    Args:
        kept: shapes of the tensors that `state_tensors` named.
        shape_of_name: the shape of a weight before quantization, by name. A byte holds two
            weights: where the sizes do not match, the shape in bytes is kept.
    """
    found = {name: shape for name, shape in kept.items() if not name.endswith(_SCALES)}
    for name in kept.keys() - found.keys():
        weight = name.removesuffix(_SCALES)
        whole = shape_of_name(weight)
        if weight in found and math.prod(found[weight]) * 2 == math.prod(whole):
            found[weight] = whole
    return found


def _opened(data: Tensor, scales: Tensor, shape: Sequence[int]) -> Tensor:
    from bitsandbytes.functional import QuantState, dequantize_4bit, get_4bit_type

    state = QuantState(  # type: ignore[no-untyped-call]
        absmax=scales,
        shape=torch.Size(shape),
        code=get_4bit_type(_FORMAT, device="cpu"),  # type: ignore[no-untyped-call]
        blocksize=_BLOCK,
        quant_type=_FORMAT,
        dtype=torch.float32,
    )
    found: Tensor = dequantize_4bit(data, state)
    return found


def rounded(full: Tensor) -> Tensor:
    """A weight quantized to 4 bits and back, as float32."""
    from bitsandbytes.functional import quantize_4bit

    data, state = quantize_4bit(full, blocksize=_BLOCK, quant_type=_FORMAT)
    return _opened(data, state.absmax, full.shape)


def state_tensors(name: str, parameter: nn.Parameter) -> dict[str, Tensor]:
    """The tensors that a 4-bit weight consists of, by name, sharing their memory."""
    return {name: parameter.data, f"{name}{_SCALES}": state_of(parameter).absmax}
