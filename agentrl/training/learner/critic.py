"""The critic of PPO: the value model, its loss and its optimizer steps.

Shapes: N sampled tokens of the batch, S samples.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agentrl.config import CriticConfig
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.collate import token_targets
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.backbone import Backbone
from agentrl.training.learner.learner_metrics import MetricAccumulator
from agentrl.training.learner.micro_batches import score_per_token, shard_microbatches
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import Batch, TokenSequence, TrainingSample


class ValueModel(Backbone):
    """A critic: a model of its own with a scalar head, one value per state.

    Args:
        policy: a Hugging Face model; its output head is dropped.
        model_adapter: adapter of the model's family.
    """

    def __init__(self, policy: nn.Module, model_adapter: ModelAdapter) -> None:
        super().__init__(policy, model_adapter)
        size = self.policy.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1, dtype=self.policy.dtype)
        # Zeros: the outputs of a random head would be noise in every advantage.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.policy.lm_head = nn.Identity()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """float32[N] values before the sampled tokens, and float32[S] after each last token."""
        values = self.head(self.hidden(batch)).squeeze(-1).float()
        if self.slice is None:
            return values[batch.logit_positions], values[batch.last_positions]
        positions = torch.cat([batch.logit_positions, batch.last_positions])
        mine, own = self.slice.mine(positions, batch.token_ids.shape[1])
        found = self.slice.joined(values[own], mine)
        # Copies: FSDP does not support views as outputs of a forward pass.
        return found[: len(batch.logit_positions)].clone(), found[
            len(batch.logit_positions) :
        ].clone()


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """[N] half the squared error, or that of the value clipped to `old` +- `clip` if it is larger.

    Source: the clipping in the reference implementation of arXiv:1707.06347; None disables it.
    """
    error = (values - returns).square()
    if clip is not None:
        clipped = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (clipped - returns).square())
    return error / 2


class Critic:
    """One rank's part of the critic.

    Args:
        model: the sharded critic.
        optimizer: optimizer of the critic alone.
        config: of `algorithm.critic`.
        packing: how samples are laid out in micro-batches.
        model_adapter: adapter of the model family.
        rank: process group and device of this rank.
    """

    def __init__(
        self,
        model: ShardedModel[ValueModel],
        optimizer: Optimizer,
        config: CriticConfig,
        packing: Packing,
        model_adapter: ModelAdapter,
        rank: Rank,
    ) -> None:
        self._model, self.optimizer = model, optimizer
        self._config, self._packing = config, packing
        self._model_adapter, self._rank = model_adapter, rank

    def score_tokens(
        self, sequences: Sequence[TokenSequence]
    ) -> tuple[list[tuple[float, ...]], list[float]]:
        """The values before each sampled token, and after the last token of each sequence."""
        return score_per_token(
            self._model.forward_only, sequences, self._packing, self._model_adapter, self._rank
        )

    def step(
        self, samples: Sequence[tuple[TrainingSample, float]], metrics: MetricAccumulator
    ) -> tuple[float, float]:
        """One optimizer step toward the samples' returns.

        Args:
            samples: with their loss weights; the same on every rank.
            metrics: gets `value_error`.

        Returns:
            Loss and gradient norm.
        """
        total = torch.zeros((), device=self._rank.device)
        for micro in shard_microbatches(samples, self._packing, self._model_adapter, self._rank):
            inputs = token_targets(micro.samples, self._rank.device)
            assert inputs.values is not None, "score_tokens computed them"
            assert inputs.returns is not None, "the algorithm's advantages have returns"
            values, _ = self._model.module(micro.batch)
            loss = micro.loss(value_loss(values, inputs.values, inputs.returns, self._config.clip))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * micro.counts_in_metrics
            error = (values.detach() - inputs.returns).square()
            metrics.add({"value_error": error}, micro.counts_in_metrics, count="values")
        return self.optimizer.step(self._config.lr, total)

    def copy_from(self, policy: ShardedModel[Any]) -> None:
        """Copy the policy's backbone; the value head keeps its zeros."""
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
