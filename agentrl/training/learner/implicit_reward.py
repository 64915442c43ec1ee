"""An implicit process reward model, trained on outcomes alone (PRIME, arXiv:2502.01456)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from agentrl.config import ImplicitRewardConfig
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.logprob_model import LogprobModel
from agentrl.training.learner.micro_batches import score_per_token, shard_microbatches
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import Batch, TokenSequence


def bce_gradients(
    ratios: Sequence[float], labels: Sequence[float], beta: float
) -> tuple[list[float], float]:
    """Binary cross-entropy of predicted outcomes, and its gradient.

    Args:
        ratios: [E] log-ratio of reward model to reference, summed over an episode's tokens.
        labels: [E] outcome in [0, 1].
        beta: scale of the reward.

    Returns:
        [E] derivative of each episode's cross-entropy between label and sigmoid(beta * ratio) by
        the ratio, and so by the log-probability of each of its tokens; and the cross-entropy in
        nats, averaged over the episodes, 0 without any.
    """
    logits = beta * torch.tensor(ratios, dtype=torch.float64)
    targets = torch.tensor(labels, dtype=torch.float64)
    loss = binary_cross_entropy_with_logits(logits, targets).item() if ratios else 0.0
    return (beta * (torch.sigmoid(logits) - targets)).tolist(), loss


class ImplicitReward:
    """One rank's part of the reward model.

    Args:
        model: the sharded reward model.
        optimizer: optimizer of the reward model alone.
        config: of `algorithm.implicit_reward`.
        packing: how samples are laid out in micro-batches.
        model_adapter: adapter of the model family.
        rank: process group and device of this rank.
        temperature: sampling temperature.
    """

    def __init__(
        self,
        model: ShardedModel[LogprobModel],
        optimizer: Optimizer,
        config: ImplicitRewardConfig,
        packing: Packing,
        model_adapter: ModelAdapter,
        rank: Rank,
        temperature: float,
    ) -> None:
        self._model, self.optimizer, self._config = model, optimizer, config
        self._packing, self._model_adapter, self._rank = packing, model_adapter, rank
        self._temperature = temperature

    def score_tokens(self, sequences: Sequence[TokenSequence]) -> list[tuple[float, ...]]:
        """Log-probabilities of each sequence's sampled tokens."""

        def forward(batch: Batch) -> tuple[Tensor, None]:
            return self._model.forward_only(batch, self._temperature).logprobs, None

        return score_per_token(forward, sequences, self._packing, self._model_adapter, self._rank)[
            0
        ]

    def step(self, samples: Sequence[tuple[TokenSequence, float]]) -> tuple[float, float]:
        """One optimizer step on the cross-entropy of outcomes.

        Args:
            samples: each with the gradient of its episode; see `bce_gradients`.

        Returns:
            A surrogate loss, which has the gradient of the cross-entropy but not its value, and
            the gradient norm.
        """
        total = torch.zeros((), device=self._rank.device)
        for micro in shard_microbatches(samples, self._packing, self._model_adapter, self._rank):
            loss = micro.loss(self._model.module(micro.batch, self._temperature).logprobs)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * micro.counts_in_metrics
        return self.optimizer.step(self._config.lr, total)

    def copy_from(self, policy: ShardedModel[LogprobModel]) -> None:
        """Copy the policy's weights."""
        self._model.copy_from(policy)

    def state_tensors(self) -> dict[str, Tensor]:
        """All tensors of its state by name, sharing their memory."""
        return {
            **{f"model/{name}": tensor for name, tensor in self._model.state_tensors().items()},
            **{
                f"optimizer/{name}": tensor
                for name, tensor in self.optimizer.state_tensors().items()
            },
        }
