"""The critic: state values, from a model and an optimizer of its own (PPO)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentrl.config import AlgorithmConfig
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.batches import Packing
from agentrl.training.learner import token_scores
from agentrl.training.learner.metric_accumulator import Tally
from agentrl.training.learner.micro_batches import Weighed, share
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel import Rank
from agentrl.training.learner.sharded_model import Sharded
from agentrl.training.learner.token_scorer import ValueScorer
from agentrl.types import Sample


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    """[N] half the squared error, or that of the value clipped to `old` +- `clip` if it is larger.

    Source: the clipping in the reference implementation of arXiv:1707.06347; 0 disables it.
    """
    error = (values - returns).square()
    if clip > 0:
        clipped = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (clipped - returns).square())
    return error / 2


class Critic:
    """One rank's part of the critic.

    Args:
        model: the sharded critic.
        optimizer: of the critic alone.
        config: `critic_lr` and `critic_clip` are used.
        packing: how samples are laid out in micro-batches.
        model_adapter: the model family's.
        rank: this rank.
    """

    def __init__(
        self,
        model: Sharded[ValueScorer],
        optimizer: Optimizer,
        config: AlgorithmConfig,
        packing: Packing,
        model_adapter: ModelAdapter,
        rank: Rank,
    ) -> None:
        self._model, self.optimizer = model, optimizer
        self._config, self._packing, self._model_adapter, self._rank = (
            config,
            packing,
            model_adapter,
            rank,
        )
        self.began = False
        """Whether its weights have been initialized from the policy."""

    def judge(self, samples: Sequence[Sample]) -> tuple[list[tuple[float, ...]], list[float]]:
        """The values before each sampled token, and after the last token of each sample."""
        return token_scores.per_token(
            self._model.look, samples, self._packing, self._model_adapter, self._rank
        )

    def step(self, weighed: Sequence[Weighed], tally: Tally) -> tuple[float, float]:
        """One optimizer step toward the samples' returns.

        Returns:
            Loss and gradient norm.
        """
        total = torch.zeros((), device=self._rank.device)
        for part in share(weighed, self._packing, self._model_adapter, self._rank):
            values, _ = self._model.scorer(part.batch)
            columns = part.batch.columns
            loss = part.loss(
                value_loss(values, columns["values"], columns["returns"], self._config.critic_clip)
            )
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * part.told
            error = (values.detach() - columns["returns"]).square()
            tally.add({"value_error": error}, part.told, count="values")
        return self.optimizer.step(self._config.critic_lr, total)

    def begin_as(self, policy: Sharded[Any]) -> None:
        """Copy the policy's backbone; the value head keeps its zeros."""
        self._model.begin_as(policy)
        self.began = True

    def live(self) -> dict[str, Tensor]:
        """All tensors of its state by name, sharing their memory."""
        return {
            **{f"model/{name}": tensor for name, tensor in self._model.live().items()},
            **{f"optimizer/{name}": tensor for name, tensor in self.optimizer.live().items()},
        }
