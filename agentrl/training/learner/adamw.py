"""AdamW on plain tensors: torch's fused version, and a compact one for low-precision state.

8-bit moments need bitsandbytes (extra `qlora`), imported only here and in `four_bit_weights`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Keys of the two moments in the optimizer state."""
REMAINDER = "remainder"
"""Key in the optimizer state for a weight's lower bits."""
_EPS = 1e-8
_BLOCK = 256
"""Number of 8-bit moments that share a scale, in bitsandbytes' kernels."""
_PIECE = 1 << 23
_PIECE_ON_CPU = 1 << 18
"""Approximate number of weights unpacked to float32 at a time on a CPU: small enough for the
cache, which is faster."""

Moments = Literal["float32", "bfloat16", "8bit"]


class FusedAdamW:
    """torch's fused AdamW on float32 weights.

    Args:
        shards: float32 weights by name, stepped in place.
        betas: decay rates of the two moments.
        weight_decay: weight decay per step by name, multiplied by the learning rate.
    """

    def __init__(
        self,
        shards: Mapping[str, Tensor],
        *,
        betas: Sequence[float],
        weight_decay: Mapping[str, float],
    ) -> None:
        self._shards = {n: nn.Parameter(shard) for n, shard in shards.items()}
        groups: dict[float, list[nn.Parameter]] = {}
        for name, shard in self._shards.items():
            if shard.numel():
                groups.setdefault(weight_decay[name], []).append(shard)
        self._adam = torch.optim.AdamW(
            [{"params": own, "weight_decay": decay} for decay, own in groups.items()],
            lr=0.0,
            betas=(betas[0], betas[1]),
            fused=True,
        )
        self.allocate()

    def step(self, gradients: Mapping[str, Tensor], lr: float, scale: float) -> None:
        """Step the weights that have a gradient.

        Args:
            gradients: nonempty gradients by weight name; overwritten.
            lr: learning rate.
            scale: factor applied to all gradients.
        """
        for name, gradient in gradients.items():
            self._shards[name].grad = gradient
        if scale != 1:
            torch._foreach_mul_(list(gradients.values()), scale)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        for name in gradients:
            self._shards[name].grad = None

    def state(self, name: str) -> dict[str, Tensor]:
        """Return a weight's moments, sharing their memory."""
        shard = self._shards[name]
        if not shard.numel():
            return {moment: torch.zeros_like(shard) for moment in MOMENTS}
        state = self._allocate(shard)
        return {moment: state[moment] for moment in MOMENTS}

    def set_step(self, name: str, count: int) -> None:
        """Set the number of steps that a weight has taken."""
        if self._shards[name].numel():
            self._allocate(self._shards[name])["step"].fill_(count)

    def allocate(self) -> None:
        """Allocate missing moments, as zeros."""
        for shard in self._shards.values():
            if shard.numel():
                self._allocate(shard)

    def release(self) -> None:
        """Free the moments; `allocate` or the next step recreates them as zeros."""
        self._adam.state.clear()

    def _allocate(self, shard: Tensor) -> dict[str, Tensor]:
        """Return the state of one shard, creating it as a first step would if it is missing."""
        # torch would only allocate it in the first step, after the episodes have been played.
        if not self._adam.state.get(shard):
            self._adam.state[shard] = {
                "step": torch.zeros((), dtype=torch.float32, device=shard.device),
                **{moment: torch.zeros_like(shard) for moment in MOMENTS},
            }
        state: dict[str, Tensor] = self._adam.state[shard]
        return state


class CompactAdamW:
    """AdamW that computes in float32 but stores weights or moments compactly or in CPU memory.

    A step unpacks a piece of a weight and its state to float32, steps it with a fused kernel and
    packs it again. A bfloat16 weight and its `remainder` represent a float32 weight exactly, so
    even tiny updates accumulate.

    Args:
        shards: float32 or bfloat16 weights by name, stepped in place.
        remainders: lower bits of each bfloat16 weight, as int16 of the same shape.
        moments: storage format of both moments. `8bit` applies to weights with at least 256 values
            per row: they are quantized by bitsandbytes in blocks of 256 (arXiv:2110.02861) that
            never cross a row, so moments can be sharded by rows. Other weights have float32
            moments.
        betas: decay rates of the two moments.
        weight_decay: weight decay per step by name, multiplied by the learning rate.
        offload: whether to keep moments in CPU memory.
    """

    def __init__(
        self,
        shards: Mapping[str, Tensor],
        remainders: Mapping[str, Tensor],
        *,
        moments: Moments,
        betas: Sequence[float],
        weight_decay: Mapping[str, float],
        offload: bool = False,
    ) -> None:
        self._shards, self._remainders = dict(shards), dict(remainders)
        self._moments, self._offload = moments, offload
        self._betas, self._weight_decay = (betas[0], betas[1]), dict(weight_decay)
        self._steps = dict.fromkeys(shards, 0)
        self._state: dict[str, dict[str, Tensor]] = {}
        self._maps: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self.allocate()

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], lr: float, scale: float) -> None:
        """Step the weights that have a gradient."""
        for name, gradient in gradients.items():
            self._steps[name] += 1
            weight, state = self._shards[name], self._allocate(name)
            tensors = {"weight": weight, "gradient": gradient.contiguous(), **state}
            if name in self._remainders:
                tensors[REMAINDER] = self._remainders[name]
            for piece in _pieces(tensors, len(weight)):
                self._step_piece(piece, self._steps[name], lr, scale, self._weight_decay[name])

    def _step_piece(
        self, piece: dict[str, Tensor], step: int, lr: float, scale: float, weight_decay: float
    ) -> None:
        stored, device = piece["weight"], piece["weight"].device
        low = piece.get(REMAINDER)
        weight = stored if low is None else join(stored, low)
        gradient = piece["gradient"].float()
        if scale != 1:
            gradient = gradient * scale
        if "exp_avg_scale" in piece:
            # Blocks never cross a row, so pad each row to whole blocks.
            columns = stored.shape[1]
            missing = piece["exp_avg"].shape[1] - columns
            whole = pad(weight, (0, missing)) if missing else weight
            self._quantized(piece, whole, pad(gradient, (0, missing)), step, lr, weight_decay)
            if missing:
                weight.copy_(whole[:, :columns])
        else:
            kept = [piece[moment] for moment in MOMENTS]
            exp_avg, exp_avg_sq = (moment.to(device, torch.float32) for moment in kept)
            torch._fused_adamw_(
                [weight],
                [gradient],
                [exp_avg],
                [exp_avg_sq],
                [],
                [torch.full((), float(step), device=device)],
                lr=lr,
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=weight_decay,
                eps=_EPS,
                amsgrad=False,
                maximize=False,
            )
            _put_back(kept, (exp_avg, exp_avg_sq))
        if low is not None:
            split(weight, stored, low)

    def _quantized(
        self,
        piece: dict[str, Tensor],
        weight: Tensor,
        gradient: Tensor,
        step: int,
        lr: float,
        weight_decay: float,
    ) -> None:
        """Step a piece whose rows are padded to whole blocks."""
        from bitsandbytes.functional import optimizer_update_8bit_blockwise

        names = (*MOMENTS, *(f"{moment}_scale" for moment in MOMENTS))
        kept = [piece[name] for name in names]
        moved = [tensor.to(weight.device) for tensor in kept]
        codes, codes_sq, scales, scales_sq = moved
        maps, (beta1, beta2) = self._maps_on(weight.device), self._betas
        optimizer_update_8bit_blockwise(
            "adam",
            gradient,
            weight,
            codes,
            codes_sq,
            beta1,
            beta2,
            # The third beta and alpha, which only other optimizers use.
            0.0,
            0.0,
            _EPS,
            step,
            lr,
            *maps,
            scales.view(-1),
            scales_sq.view(-1),
            weight_decay,
        )
        _put_back(kept, moved)

    def _maps_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the float32[256] dequantization tables of the first and the second moment."""
        from bitsandbytes.functional import create_dynamic_map

        if device not in self._maps:
            signed, unsigned = (
                create_dynamic_map(signed=sign).to(device)  # type: ignore[no-untyped-call]
                for sign in (True, False)
            )
            self._maps[device] = signed, unsigned
        return self._maps[device]

    def state(self, name: str) -> dict[str, Tensor]:
        """Return a weight's moments and remainder, sharing their memory."""
        low = {REMAINDER: self._remainders[name]} if name in self._remainders else {}
        return {**self._allocate(name), **low}

    def set_step(self, name: str, count: int) -> None:
        """Set the number of steps that a weight has taken."""
        self._steps[name] = count

    def allocate(self) -> None:
        """Allocate missing moments, as zeros."""
        for name in self._shards:
            self._allocate(name)

    def release(self) -> None:
        """Free the moments; `allocate` or the next step recreates them as zeros."""
        self._state.clear()

    def _allocate(self, name: str) -> dict[str, Tensor]:
        if name not in self._state:
            shard = self._shards[name]
            columns = math.prod(shard.shape[1:])
            if self._moments == "8bit" and columns >= _BLOCK:
                blocks = math.ceil(columns / _BLOCK)
                codes = (len(shard), blocks * _BLOCK)
                made = {m: self._zeros(codes, torch.uint8, shard.device) for m in MOMENTS}
                for moment in MOMENTS:
                    scales = self._zeros((len(shard), blocks), torch.float32, shard.device)
                    made[f"{moment}_scale"] = scales
            else:
                dtype = torch.bfloat16 if self._moments == "bfloat16" else torch.float32
                made = {m: self._zeros(shard.shape, dtype, shard.device) for m in MOMENTS}
            self._state[name] = made
        return self._state[name]

    def _zeros(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        if not self._offload or device.type == "cpu":
            return torch.zeros(shape, dtype=dtype, device=device)
        # Page-locked, because each step copies all of it to the GPU and back.
        return torch.zeros(shape, dtype=dtype, pin_memory=True)


def _pieces(tensors: Mapping[str, Tensor], rows: int) -> Iterator[dict[str, Tensor]]:
    """Yield matrix views of the same rows of all tensors, piece by piece."""
    matrices = {name: tensor.view(rows, -1) for name, tensor in tensors.items()}
    weight = matrices["weight"]
    size = _PIECE_ON_CPU if weight.device.type == "cpu" else _PIECE
    count = max(1, size // weight.shape[1])
    for first in range(0, rows, count):
        yield {name: matrix[first : first + count] for name, matrix in matrices.items()}


def _put_back(kept: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
    """Copy tensors that were converted or moved for the step back to their storage."""
    for old, new in zip(kept, moved, strict=True):
        if new is not old:
            old.copy_(new)


def join(weight: Tensor, remainder: Tensor) -> Tensor:
    """Combine upper and lower bits into a float32 tensor.

    Args:
        weight: bfloat16, the value rounded to nearest, ties away from zero.
        remainder: int16, the lower bits.
    """
    # A negative remainder means the upper bits were rounded up; adding it undoes the rounding.
    bits = (weight.view(torch.int16).to(torch.int32) << 16).add_(remainder)
    return bits.view(torch.float32)


def split(full: Tensor, weight: Tensor, remainder: Tensor) -> None:
    """Split a finite float32 tensor into bfloat16 and the lower bits, in place; inverts `join`."""
    bits = full.view(torch.int32)
    # int16 keeps the lower half. Adding half of the last kept bit rounds the rest to nearest.
    remainder.copy_(bits)
    weight.view(torch.int16).copy_((bits + 0x8000) >> 16)
