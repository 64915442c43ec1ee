"""An implicit process reward model, trained on outcomes alone (PRIME, arXiv:2502.01456)."""

from collections.abc import Sequence

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from agentrl.config import ImplicitRewardConfig
from agentrl.training.learner.micro_batches import MicroBatcher
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import TokenSequence


def bce_gradients(
    ratios: Sequence[float], labels: Sequence[float], beta: float
) -> tuple[list[float], float]:
    """Compute the binary cross-entropy of predicted outcomes and its gradient.

    Args:
        ratios: [E] log-ratio of reward model to reference, summed over an episode's tokens.
        labels: [E] outcome in [0, 1].
        beta: scale of the reward.

    Returns:
        [E] derivative of each episode's cross-entropy between label and sigmoid(beta * ratio) with
        respect to the ratio, and thus to the log-probability of each of its tokens; and the mean
        cross-entropy over the episodes in nats, 0 without episodes.
    """
    logits = beta * torch.tensor(ratios, dtype=torch.float64)
    targets = torch.tensor(labels, dtype=torch.float64)
    # float64, because log-ratios summed over a long episode are large.
    loss = binary_cross_entropy_with_logits(logits, targets).item() if ratios else 0.0
    return (beta * (torch.sigmoid(logits) - targets)).tolist(), loss


class ImplicitReward:
    """One rank's part of the reward model."""

    def __init__(
        self,
        model: ShardedModel[LogprobModel],
        optimizer: Optimizer,
        config: ImplicitRewardConfig,
        batcher: MicroBatcher,
        temperature: float,
    ) -> None:
        self.model, self.optimizer, self._config = model, optimizer, config
        self._batcher, self._temperature = batcher, temperature

    def step(self, samples: Sequence[tuple[TokenSequence, float]]) -> float:
        """Take one optimizer step on the cross-entropy of outcomes.

        Args:
            samples: samples with their episodes' gradients; see `bce_gradients`.

        Returns:
            The gradient norm; not finite if the step was skipped.
        """
        total = self._batcher.backward(
            samples, lambda micro: self.model.module(micro.batch, self._temperature).logprobs
        )
        # `summed` has the gradient of the cross-entropy, but not its value. Adding 0 * summed
        # makes the returned norm NaN if the sum is not finite.
        summed, grad_norm = self.optimizer.step(self._config.lr, total)
        return grad_norm + 0.0 * summed
