"""AdamW over the shards of one rank, the global gradient norm, and learning rates."""

import logging
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from agentrl.config import OptimConfig
from agentrl.errors import LearnerError
from agentrl.training.learner.adamw import CompactAdamW, FusedAdamW, Moments
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.parallel.sharding import local_shard, num_copies, state_dtensor

_log = logging.getLogger(__name__)

MAX_SKIPS = 5
"""Number of consecutive skipped steps of an optimizer that end the run, because the model has
diverged."""


class Optimizer:
    """AdamW (arXiv:1711.05101) on this rank's shards, as plain tensors.

    AdamW is elementwise, so each rank steps its own shards; as plain tensors, they share one fused
    kernel. Moments are allocated immediately, to notice a lack of memory before any episode.

    Args:
        parameters: parameters by name, sharded or not; skips those that require no gradient.
        remainders: lower bits of this rank's shards of bfloat16 parameters, by name; see `join`.
        weight_decay: weight decay per step, multiplied by the learning rate; see `decays`.
        offload_moments: whether to keep moments in CPU memory.
        lr_setting: key of the learning rate, for error messages.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        rank: Rank,
        remainders: Mapping[str, Tensor] | None = None,
        *,
        betas: Sequence[float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
        moments: Moments = "float32",
        offload_moments: bool = False,
        lr_setting: str = "optim.lr",
    ) -> None:
        self._lr_setting = lr_setting
        self._skips_in_a_row = 0
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self._rank = rank
        self._grad_clip = grad_clip
        # These are views of the shards, so a step changes the model itself.
        shards = {n: local_shard(p).detach() for n, p in self._parameters.items()}
        self._copies = {n: num_copies(p) for n, p in self._parameters.items()}
        self._steps = dict.fromkeys(self._parameters, 0)
        self._adam: FusedAdamW | CompactAdamW
        decay = {n: weight_decay * decays(n, p) for n, p in self._parameters.items()}
        offload = offload_moments and any(s.device.type != "cpu" for s in shards.values())
        if remainders or moments != "float32" or offload:
            self._adam = CompactAdamW(
                shards,
                remainders or {},
                moments=moments,
                betas=betas,
                weight_decay=decay,
                offload=offload,
            )
        else:
            self._adam = FusedAdamW(shards, betas=betas, weight_decay=decay)

    @torch.no_grad()
    def step(self, lr: float, loss: Tensor) -> tuple[float, float]:
        """Clip the gradients, step and clear them; skip the step if loss or norm is not finite.

        Args:
            lr: learning rate.
            loss: this rank's part of the loss.

        Returns:
            The loss summed over all ranks, and the global gradient norm before clipping. If the
            step was skipped, at least one of the two is not finite.

        Raises:
            LearnerError: `MAX_SKIPS` consecutive steps were skipped.
        """
        gradients, stepped = {}, []
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                stepped.append(name)
                # A rank may have no row of a small parameter, but still counts its steps.
                if (gradient := local_shard(parameter.grad)).numel():
                    gradients[name] = gradient
            parameter.grad = None
        # Count each shard once, even if several ranks have it. Sum loss and norm in one collective.
        norms = torch._foreach_norm([*gradients.values()], 2, torch.float32) if gradients else ()
        squares = (
            norm.square() / self._copies[name] for name, norm in zip(gradients, norms, strict=True)
        )
        sums = torch.stack([sum(squares, torch.zeros_like(loss)), loss.detach()])
        total, norm = self._rank.sum(sums)[1].item(), sums[0].sqrt().item()
        if math.isfinite(total) and math.isfinite(norm):
            scale = self._grad_clip / (norm + 1e-6) if norm > self._grad_clip else 1.0
            self._adam.step(gradients, lr, scale)
            for name in stepped:
                self._steps[name] += 1
            self._skips_in_a_row = 0
            return total, norm
        self._skips_in_a_row += 1
        _log.warning("skipped an optimizer step because the loss or gradient was not finite")
        if self._skips_in_a_row >= MAX_SKIPS:
            raise LearnerError(
                f"training diverged: the loss or gradient was not finite in {MAX_SKIPS} "
                f"consecutive optimizer steps. Lower {self._lr_setting}, or resume from an earlier "
                "checkpoint."
            )
        return total, norm

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the state by parameter name, sharded like the parameters, sharing its memory."""
        return {
            f"{name}/{part}": state_dtensor(tensor, parameter)
            for name, parameter in self._parameters.items()
            for part, tensor in self._adam.state(name).items()
        }

    def allocate(self) -> None:
        """Allocate the moments again after `release`."""
        self._adam.allocate()

    def release(self) -> None:
        """Free the moments of an optimizer that has not stepped; the next step allocates them."""
        assert not self.num_steps, "the moments of an optimizer in use would be lost"
        self._adam.release()

    @property
    def num_steps(self) -> int:
        """Number of steps taken, excluding skipped steps."""
        return max(self._steps.values(), default=0)

    @property
    def steps(self) -> dict[str, int]:
        """The number of steps each parameter has taken; the same on every rank."""
        return dict(self._steps)

    @steps.setter
    def steps(self, steps: Mapping[str, int]) -> None:
        self._steps = {name: steps[name] for name in self._parameters}
        for name, count in self._steps.items():
            self._adam.set_step(name, count)


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: to matrices, not to norms, biases and other vectors."""
    return parameter.ndim > 1 and name.rpartition(".")[2] != "bias"


def learning_rate(config: OptimConfig, past: float, step: int) -> float:
    """Return the learning rate of an optimizer step: linear warmup, then decay over the run.

    Args:
        config: optimizer settings of the policy.
        past: fraction of training steps done, in [0, 1].
        step: number of optimizer steps taken before this one.
    """
    # Decay counts training steps; warmup counts optimizer steps, several per training step.
    left = 1 - past if config.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * past))
    lr = config.lr * (config.lr_final_ratio + (1 - config.lr_final_ratio) * left)
    is_warmup = step + 1 < config.lr_warmup_steps
    return lr * (step + 1) / config.lr_warmup_steps if is_warmup else lr
