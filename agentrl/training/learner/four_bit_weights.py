"""Frozen 4-bit base weights (QLoRA, arXiv:2305.14314), using bitsandbytes.

Only this module and `adamw` import bitsandbytes (extra `qlora`). The weights are replicated, not
sharded.
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


def replace_linear_layers(policy: nn.Module, names: Iterable[str]) -> None:
    """Replace linear layers with 4-bit layers, in place; `quantize_into` fills their weights."""
    from bitsandbytes import nn as bnb

    for name in names:
        plain = policy.get_submodule(name)
        assert isinstance(plain, nn.Linear)
        layer: Any = bnb.Linear4bit(  # type: ignore[no-untyped-call,attr-defined]
            plain.in_features,
            plain.out_features,
            bias=False,
            compute_dtype=plain.weight.dtype,
            compress_statistics=False,
            quant_type=_FORMAT,
            device="meta",
        )
        layer.weight, layer.bias = plain.weight, plain.bias
        # Otherwise bitsandbytes repacks weights on some CPUs, in a layout that cannot be saved.
        layer.support_avx512bf16_for_cpu = False
        policy.set_submodule(name, layer)


def layers(module: nn.Module) -> dict[str, nn.Module]:
    """Return the 4-bit layers of a module, by the names of their weights."""
    from bitsandbytes import nn as bnb

    return {
        f"{name}.weight": layer
        for name, layer in module.named_modules()
        if isinstance(layer, bnb.Linear4bit)  # type: ignore[attr-defined]
    }


def quantize_into(layer: Any, full: Tensor, device: torch.device) -> None:
    """Quantize the weight of a 4-bit layer."""
    from bitsandbytes import nn as bnb

    weight: Any = bnb.Params4bit(  # type: ignore[attr-defined]
        full,
        requires_grad=False,
        compress_statistics=False,
        quant_type=_FORMAT,
        blocksize=_BLOCK,
        module=layer,
    )
    layer.weight = weight.to(device)


def num_bytes(weights: int) -> int:
    """Return the size in bytes of this many quantized weights, with their float32 scales."""
    return weights // 2 + 4 * math.ceil(weights / _BLOCK)


def quant_state(parameter: nn.Parameter) -> Any:
    """Return the quantization state of a 4-bit weight; None for any other parameter."""
    return getattr(parameter, "quant_state", None)


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return a weight's shape before quantization."""
    state = quant_state(parameter)
    return tuple(parameter.shape if state is None else state.shape)


def dequantize(parameter: nn.Parameter) -> Tensor:
    """Dequantize a 4-bit weight to float32 on the CPU."""
    from bitsandbytes.functional import dequantize_4bit

    found: Tensor = dequantize_4bit(parameter.data, quant_state(parameter))
    return found.float().cpu()


@torch.no_grad()
def requantize_into(parameter: nn.Parameter, full: Tensor) -> None:
    """Quantize a full weight into a 4-bit parameter; precision is lost."""
    from bitsandbytes.functional import quantize_4bit

    state = quant_state(parameter)
    data, new_state = quantize_4bit(
        full.to(parameter.device, state.dtype), blocksize=_BLOCK, quant_type=_FORMAT
    )
    parameter.data.copy_(data.view_as(parameter.data))
    state.absmax.copy_(new_state.absmax)


def dequantize_tensors(
    tensors: Mapping[str, Tensor], shape_of_name: Callable[[str], Sequence[int]]
) -> dict[str, Tensor]:
    """Dequantize tensors named by `state_tensors` to float32.

    Args:
        tensors: tensors by name; those that are not in 4 bits are returned unchanged.
        shape_of_name: returns a weight's shape before quantization.
    """
    found = {name: t for name, t in tensors.items() if not name.endswith(_SCALES)}
    for name in tensors.keys() - found.keys():
        weight = name.removesuffix(_SCALES)
        found[weight] = _dequantize(tensors[weight], tensors[name], shape_of_name(weight))
    return found


def dequantized_shapes(
    stored: Mapping[str, tuple[int, ...]], shape_of_name: Callable[[str], tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that `dequantize_tensors` would return.

    Args:
        stored: shapes of tensors named by `state_tensors`.
        shape_of_name: returns a weight's shape before quantization. A byte holds two weights; if
            the sizes do not match, the stored shape is kept.
    """
    found = {name: shape for name, shape in stored.items() if not name.endswith(_SCALES)}
    for name in stored.keys() - found.keys():
        weight = name.removesuffix(_SCALES)
        shape = shape_of_name(weight)
        if weight in found and math.prod(found[weight]) * 2 == math.prod(shape):
            found[weight] = shape
    return found


def _dequantize(data: Tensor, scales: Tensor, shape: Sequence[int]) -> Tensor:
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


def quantize_roundtrip(full: Tensor) -> Tensor:
    """Quantize a weight to 4 bits and back, and return it as float32."""
    from bitsandbytes.functional import quantize_4bit

    data, state = quantize_4bit(full, blocksize=_BLOCK, quant_type=_FORMAT)
    return _dequantize(data, state.absmax, full.shape)


def scale_name(name: str) -> str:
    """Return the name of a 4-bit weight's scales in `state_tensors`."""
    return f"{name}{_SCALES}"


def is_scale(name: str) -> bool:
    """Whether a name belongs to a 4-bit weight's scales."""
    return name.endswith(_SCALES)


def state_tensors(name: str, parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return the tensors of a 4-bit weight by name, sharing their memory."""
    return {name: parameter.data, f"{name}{_SCALES}": quant_state(parameter).absmax}
