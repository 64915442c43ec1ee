"""AdamW over the shards of one rank, the global gradient norm, and learning rates."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agentrl.training.parallel import Rank, local, scatter, whole

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """AdamW (arXiv:1711.05101) on this rank's shards, as plain tensors.

    The step of AdamW is elementwise, so that shards need not know of each other; as plain tensors
    they are stepped by one fused kernel.

    Args:
        parameters: name and parameter, sharded or not; those without gradient are left out.
        rank: this rank.
        betas: decay of the two moments.
        weight_decay: per step, times the learning rate.
        grad_clip: the global norm that gradients are scaled down to.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        rank: Rank,
        *,
        betas: Sequence[float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
    ) -> None:
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self._rank = rank
        self._grad_clip = grad_clip
        # Views of the shards: a step changes the model itself.
        self._shards = {n: nn.Parameter(local(p).detach()) for n, p in self._parameters.items()}
        self._adam = torch.optim.AdamW(
            [shard for shard in self._shards.values() if shard.numel()],
            lr=0.0,
            betas=(betas[0], betas[1]),
            weight_decay=weight_decay,
            fused=True,
        )

    @torch.no_grad()
    def step(self, lr: float, loss: Tensor) -> tuple[float, float]:
        """Clip, step and clear the gradients; a loss or norm that is not finite steps nothing.

        Args:
            lr: learning rate.
            loss: this rank's part of the loss.

        Returns:
            The loss over all ranks, and the global gradient norm before clipping; one of them is
            not finite where the step was skipped.
        """
        gradients = self._take_gradients()
        squares = [norm.square() for norm in torch._foreach_norm(gradients)] if gradients else []
        sums = torch.stack([sum(squares, torch.zeros_like(loss)), loss.detach()])
        total, norm = self._rank.sum(sums)[1].item(), sums[0].sqrt().item()
        if math.isfinite(total) and math.isfinite(norm):
            if norm > self._grad_clip:
                torch._foreach_mul_(gradients, self._grad_clip / (norm + 1e-6))
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
        for shard in self._shards.values():
            shard.grad = None
        return total, norm

    def _take_gradients(self) -> list[Tensor]:
        gradients = []
        for name, parameter in self._parameters.items():
            if parameter.grad is not None and self._shards[name].numel():
                self._shards[name].grad = local(parameter.grad)
                gradients.append(self._shards[name].grad)
            parameter.grad = None
        return [gradient for gradient in gradients if gradient is not None]

    def state(self) -> dict[str, Any]:
        """The full moments by parameter name, on the CPU; a collective call."""
        result: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            shard = self._shards[name]
            kept = self._adam.state.get(shard, {})
            moments = {m: whole(kept.get(m, torch.zeros_like(shard)), parameter) for m in _MOMENTS}
            steps = self._adam.state[shard]["step"].cpu().clone() if kept else torch.tensor(0.0)
            result[name] = {"step": steps, **moments}
        return result

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned, also with another number of ranks."""
        self._adam.state.clear()
        for name, parameter in self._parameters.items():
            shard = self._shards[name]
            if not shard.numel() or not state[name]["step"].item():
                continue
            kept = {m: torch.zeros_like(shard) for m in _MOMENTS}
            for moment, tensor in kept.items():
                scatter(state[name][moment], tensor, parameter)
            self._adam.state[shard] = {"step": state[name]["step"].to(shard.device).clone(), **kept}


def warmed_up(lr: float, step: int, warmup_steps: int) -> float:
    """The learning rate of step `step` (from 0), rising linearly over the first ones."""
    return lr * min(1.0, (step + 1) / warmup_steps) if warmup_steps > 0 else lr
