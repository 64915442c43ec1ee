"""AdamW over the shards of one rank, the global gradient norm, and learning rates."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from agentrl.config import OptimConfig
from agentrl.training.learner.process_group import Rank
from agentrl.training.learner.sharding import as_dtensor, local_shard

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """AdamW (arXiv:1711.05101) on this rank's shards, as plain tensors.

    AdamW is elementwise, so each rank steps its shards alone; as plain tensors they share one fused
    kernel.

    Args:
        parameters: by name, sharded or not; those that require no gradient are skipped.
        rank: process group and device of this rank.
        betas: decay rates of the two moments.
        weight_decay: per step, multiplied by the learning rate.
        grad_clip: maximum global gradient norm.
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
        self._shards = {
            n: nn.Parameter(local_shard(p).detach()) for n, p in self._parameters.items()
        }
        self._steps = dict.fromkeys(self._parameters, 0)
        self._adam = torch.optim.AdamW(
            [shard for shard in self._shards.values() if shard.numel()],
            lr=0.0,
            betas=(betas[0], betas[1]),
            weight_decay=weight_decay,
            fused=True,
        )

    @torch.no_grad()
    def step(self, lr: float, loss: Tensor) -> tuple[float, float]:
        """Clip, step and clear the gradients; skip the step if loss or norm are not finite.

        Args:
            lr: learning rate.
            loss: this rank's part of the loss.

        Returns:
            The loss summed over all ranks, and the global gradient norm before clipping; one of
            them is not finite if the step was skipped.
        """
        gradients, stepped = self._take_gradients()
        squares = (
            [norm.square() for norm in torch._foreach_norm(gradients, 2, torch.float32)]
            if gradients
            else []
        )
        sums = torch.stack([sum(squares, torch.zeros_like(loss)), loss.detach()])
        total, norm = self._rank.sum(sums)[1].item(), sums[0].sqrt().item()
        if math.isfinite(total) and math.isfinite(norm):
            if norm > self._grad_clip:
                torch._foreach_mul_(gradients, self._grad_clip / (norm + 1e-6))
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
            for name in stepped:
                self._steps[name] += 1
        for shard in self._shards.values():
            shard.grad = None
        return total, norm

    def _take_gradients(self) -> tuple[list[Tensor], list[str]]:
        """This rank's gradient shards, and the names of all parameters with a gradient."""
        gradients, names = [], []
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                names.append(name)
                if self._shards[name].numel():
                    self._shards[name].grad = gradient = local_shard(parameter.grad)
                    gradients.append(gradient)
            parameter.grad = None
        return gradients, names

    def state_tensors(self) -> dict[str, Tensor]:
        """The moments by parameter name, sharded like the parameters, sharing their memory."""
        result = {}
        for name, parameter in self._parameters.items():
            state = self._adam_state(name)
            for moment in _MOMENTS:
                result[f"{name}/{moment}"] = as_dtensor(state[moment], parameter)
        return result

    def _adam_state(self, name: str) -> dict[str, Tensor]:
        """The state of one shard, created the way a first step would if there is none yet."""
        shard = self._shards[name]
        if not shard.numel():
            return dict.fromkeys(_MOMENTS, torch.zeros_like(shard))
        if not self._adam.state.get(shard):
            self._adam.state[shard] = {
                "step": torch.zeros((), dtype=torch.float32, device=shard.device),
                **{moment: torch.zeros_like(shard) for moment in _MOMENTS},
            }
        state: dict[str, Tensor] = self._adam.state[shard]
        return state

    @property
    def steps(self) -> dict[str, int]:
        """Number of steps each parameter has taken; the same on every rank."""
        return dict(self._steps)

    @steps.setter
    def steps(self, steps: Mapping[str, int]) -> None:
        self._steps = {name: steps[name] for name in self._parameters}
        for name, count in self._steps.items():
            if self._shards[name].numel():
                self._adam_state(name)["step"].fill_(count)


def learning_rate(config: OptimConfig, past: float, step: int) -> float:
    """Learning rate of one optimizer step: linear warmup, then decay over the run.

    Args:
        config: optimizer settings of the policy.
        past: fraction of the training steps that are done, in [0, 1].
        step: number of optimizer steps before this one.
    """
    left = 1 - past if config.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * past))
    lr = config.lr * (config.lr_final_ratio + (1 - config.lr_final_ratio) * left)
    return lr * min(1.0, (step + 1) / config.lr_warmup_steps) if config.lr_warmup_steps else lr
