"""PPO's critic: the value model, its loss and its optimizer steps.

Shapes: N sampled tokens of the batch, S samples.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agentrl.config import CriticConfig
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.collate import token_targets
from agentrl.training.learner.learner_metrics import MetricAccumulator
from agentrl.training.learner.micro_batches import MicroBatch, MicroBatcher
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import Batch, TokenSequence, TrainingSample


class ValueModel(Backbone):
    """A critic: a separate model with a scalar head that predicts the value of each state."""

    headless = True

    def __init__(self, policy: nn.Module, model_adapter: ModelAdapter) -> None:
        super().__init__(policy, model_adapter)
        size = self.policy.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1, dtype=self.policy.dtype)
        # Start at zero, because a random head's outputs would add noise to every advantage.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        # Free the vocabulary-sized output head.
        self.policy.lm_head = nn.Identity()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return float32[N] values before the sampled tokens, float32[S] after each last token."""
        values = self.head(self.hidden(batch)).squeeze(-1).float()
        if self.slice is None:
            return values[batch.logit_positions], values[batch.last_positions]
        positions = torch.cat([batch.logit_positions, batch.last_positions])
        mine, own = self.slice.mine(positions, batch.token_ids.shape[1])
        found = self.slice.joined(values[own], mine)
        count = len(batch.logit_positions)
        # Return copies, because FSDP does not support views as outputs of a forward pass.
        return found[:count].clone(), found[count:].clone()


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """Return the value loss of each token, [N]: half the squared error.

    Uses the error of the value clipped to `old` ± `clip` if it is larger, like the reference
    implementation of arXiv:1707.06347; `clip=None` disables clipping.
    """
    error = (values - returns).square()
    if clip is not None:
        clipped = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (clipped - returns).square())
    return error / 2


class Critic:
    """One rank's part of the critic."""

    def __init__(
        self,
        model: ShardedModel[ValueModel],
        optimizer: Optimizer,
        config: CriticConfig,
        batcher: MicroBatcher,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._config, self._batcher = config, batcher

    def score_tokens(
        self, sequences: Sequence[TokenSequence]
    ) -> tuple[list[tuple[float, ...]], list[float]]:
        """Return the values before each sampled token and after each sequence's last token."""
        return self._batcher.score(self.model.forward_only, sequences)

    def step(
        self, samples: Sequence[tuple[TrainingSample, float]], metrics: MetricAccumulator
    ) -> None:
        """Take one optimizer step toward the samples' returns.

        Args:
            samples: samples with their loss weights; the same on every rank.
            metrics: receives `value_error`, `value_loss` and `value_grad_norm`.
        """

        def losses(micro: MicroBatch[TrainingSample]) -> Tensor:
            inputs = token_targets(micro.samples, self._batcher.rank.device)
            assert inputs.values is not None, "score_tokens computed them"
            assert inputs.returns is not None, "the algorithm's advantages have returns"
            values: Tensor = self.model.module(micro.batch)[0]
            # Log the plain error, because the loss is halved and clipped.
            error = (values.detach() - inputs.returns).square()
            metrics.add({"value_error": error}, micro.counts_in_metrics, count="values")
            return value_loss(values, inputs.values, inputs.returns, self._config.clip)

        total = self._batcher.backward(samples, losses)
        loss, grad_norm = self.optimizer.step(self._config.lr, total)
        metrics.add_step(value_loss=loss, value_grad_norm=grad_norm)
