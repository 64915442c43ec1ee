"""torch's AdamW on plain float32 tensors."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The names of the two moments."""


class FusedAdamW:
    """torch's fused AdamW.

    Args:
        shards: float32 weights by name, stepped in place.
        betas: decay rates of the two moments.
        weight_decay: by name; per step, multiplied by the learning rate.
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
            gradients: by name, none of them empty; overwritten.
            lr: learning rate.
            scale: factor of all gradients.
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
        """The moments of a weight, sharing their memory."""
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
        """Allocate the moments that are not there yet, as zeros."""
        for shard in self._shards.values():
            if shard.numel():
                self._allocate(shard)

    def release(self) -> None:
        """Free the moments; `allocate` or the next step starts again from zeros."""
        self._adam.state.clear()

    def _allocate(self, shard: Tensor) -> dict[str, Tensor]:
        """The state of one shard, created the way a first step would if there is none yet."""
        if not self._adam.state.get(shard):
            self._adam.state[shard] = {
                "step": torch.zeros((), dtype=torch.float32, device=shard.device),
                **{moment: torch.zeros_like(shard) for moment in MOMENTS},
            }
        state: dict[str, Tensor] = self._adam.state[shard]
        return state
