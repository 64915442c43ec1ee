"""An implicit process reward model, trained on outcomes alone (PRIME, arXiv:2502.01456)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from agentrl.config import AlgorithmConfig
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.batches import Packing
from agentrl.training.learner import token_scores
from agentrl.training.learner.micro_batches import Weighed, share
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel import Rank
from agentrl.training.learner.sharded_model import Sharded
from agentrl.training.learner.token_scorer import TokenScorer
from agentrl.types import Batch, Sample


def slopes(
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
        optimizer: of the reward model alone.
        config: `prime_lr` is used.
        packing: how samples are laid out in micro-batches.
        model_adapter: the model family's.
        rank: this rank.
        temperature: that tokens are sampled with.
    """

    def __init__(
        self,
        model: Sharded[TokenScorer],
        optimizer: Optimizer,
        config: AlgorithmConfig,
        packing: Packing,
        model_adapter: ModelAdapter,
        rank: Rank,
        temperature: float,
    ) -> None:
        self._model, self.optimizer, self._config = model, optimizer, config
        self._packing, self._model_adapter, self._rank = packing, model_adapter, rank
        self._temperature = temperature

    def judge(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Log-probabilities of each sample's sampled tokens."""

        def look(batch: Batch) -> tuple[Tensor, None]:
            return self._model.look(batch, self._temperature).logprobs, None

        return token_scores.per_token(
            look, samples, self._packing, self._model_adapter, self._rank
        )[0]

    def step(self, weighed: Sequence[Weighed]) -> tuple[float, float]:
        """One optimizer step on the cross-entropy of outcomes.

        Args:
            weighed: samples, each with the gradient of its episode; see `slopes`.

        Returns:
            A surrogate loss, which has the gradient of the cross-entropy but not its value, and
            the gradient norm.
        """
        total = torch.zeros((), device=self._rank.device)
        for part in share(weighed, self._packing, self._model_adapter, self._rank):
            loss = part.loss(self._model.scorer(part.batch, self._temperature).logprobs)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * part.told
        return self.optimizer.step(self._config.prime_lr, total)

    def begin_as(self, policy: Sharded[TokenScorer]) -> None:
        """Copy the policy's weights."""
        self._model.begin_as(policy)

    def live(self) -> dict[str, Tensor]:
        """All tensors of its state by name, sharing their memory."""
        return {
            **{f"model/{name}": tensor for name, tensor in self._model.live().items()},
            **{f"optimizer/{name}": tensor for name, tensor in self.optimizer.live().items()},
        }
