"""Weights that are not trained, in 4 bits (QLoRA, arXiv:2305.14314), by bitsandbytes.

bitsandbytes (`pip install 'agentrl[qlora]'`) is imported here alone. Every rank has them whole.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_FORMAT = "nf4"
_BLOCK = 64
"""Weights that share a scale."""
_SCALES = ".absmax"


def quantize(policy: nn.Module, names: Iterable[str]) -> None:
    """Let linear layers have weights of 4 bits, in place; they become so on the way to a device.

    Args:
        policy: the model, with its weights.
        names: of the layers, dotted.
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
        # Else it packs its weights anew for some CPUs, and what is saved is of no known layout.
        made.support_avx512bf16_for_cpu = False
        policy.set_submodule(name, made)


def state_of(parameter: nn.Parameter) -> Any:
    """How a weight of 4 bits is to be read; None for any other."""
    return getattr(parameter, "quant_state", None)


def shape_of(parameter: nn.Parameter) -> tuple[int, ...]:
    """Of the whole weight."""
    state = state_of(parameter)
    return tuple(parameter.shape if state is None else state.shape)


def whole(parameter: nn.Parameter) -> Tensor:
    """The float32 weight that one of 4 bits stands for, on the CPU."""
    from bitsandbytes.functional import dequantize_4bit

    found: Tensor = dequantize_4bit(parameter.data, state_of(parameter))
    return found.float().cpu()


@torch.no_grad()
def take(parameter: nn.Parameter, full: Tensor) -> None:
    """Let a weight of 4 bits stand for another; what 4 bits do not tell is lost."""
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
    """Tensors as `live` has told of them, each weight of 4 bits as the float32 that it stands for.

    Args:
        tensors: by name; those without 4 bits stay as they are.
        shape_of_name: of a whole weight.
    """
    found = {name: t for name, t in tensors.items() if not name.endswith(_SCALES)}
    for name in tensors.keys() - found.keys():
        weight = name.removesuffix(_SCALES)
        found[weight] = _opened(tensors[weight], tensors[name], shape_of_name(weight))
    return found


def shapes(
    kept: Mapping[str, tuple[int, ...]], shape_of_name: Callable[[str], tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Shapes of what `opened` makes, without its tensors.

    Args:
        kept: shapes by name, as `live` has told of them.
        shape_of_name: of a whole weight. Two weights take a byte: one that has not as many keeps
            the shape of its bytes.
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
    """What 4 bits make of a weight, as float32."""
    from bitsandbytes.functional import quantize_4bit

    data, state = quantize_4bit(full, blocksize=_BLOCK, quant_type=_FORMAT)
    return _opened(data, state.absmax, full.shape)


def live(name: str, parameter: nn.Parameter) -> dict[str, Tensor]:
    """What a weight of 4 bits is kept as, by name, sharing its memory."""
    return {name: parameter.data, f"{name}{_SCALES}": state_of(parameter).absmax}
