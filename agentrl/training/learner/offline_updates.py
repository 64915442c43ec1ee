"""Updates on fixed data sets: the likelihood of replies, preferences, and rewards.

Shapes: S sequences of a step, P pairs. The two answers of a pair are adjacent, the better answer
first.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from agentrl.algorithms.core.preference_loss import (
    IMPLICIT_REWARDS,
    AnswerLogprobs,
    bradley_terry_losses,
    preference_losses,
)
from agentrl.config import DPOConfig, RewardModelConfig
from agentrl.training.learner.learner_metrics import MetricAccumulator
from agentrl.training.learner.micro_batches import MicroBatch, MicroBatcher, with_loss_weights
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import Batch, LabeledSequence, PreferenceSequence, TokenSequence

_TEMPERATURE = 1.0
Objective = Callable[[Sequence[TokenSequence], Tensor], tuple[Tensor, dict[str, float]]]
"""Takes S sequences and the trained model's float64[S] numbers for them. Returns the loss,
differentiable with respect to the numbers, and metrics including `count`, the number of
examples."""


class OfflineUpdate(Protocol):
    """Trains a model on fixed examples."""

    optimizer: Optimizer

    def step(self, sequences: Sequence[TokenSequence], lr: float) -> dict[str, float]:
        """See `Learner.offline_step`."""

    def measure(self, sequences: Sequence[TokenSequence]) -> dict[str, float]:
        """See `Learner.offline_loss`."""


class SupervisedUpdate:
    """Supervised training of a rank's policy on the sampled tokens.

    Args:
        policy: model to train.
        optimizer: the policy's optimizer, or a separate one for supervised steps.
        batcher: gives this rank its micro-batches.
    """

    def __init__(
        self, policy: ShardedModel[LogprobModel], optimizer: Optimizer, batcher: MicroBatcher
    ) -> None:
        self._policy, self.optimizer, self._batcher = policy, optimizer, batcher

    def step(self, sequences: Sequence[TokenSequence], lr: float) -> dict[str, float]:
        """See `Learner.offline_step`."""
        started = time.perf_counter()
        metrics = MetricAccumulator(self._batcher.rank)

        def losses(micro: MicroBatch[TokenSequence]) -> Tensor:
            logprobs: Tensor
            logprobs, entropy, predicted = self._policy.module(micro.batch, _TEMPERATURE)
            hits = predicted == micro.batch.targets
            metrics.add({"token_accuracy": hits, "entropy": entropy}, micro.counts_in_metrics)
            return -logprobs

        # Every token of the step weighs the same, on whichever rank and in whichever micro-batch.
        total = self._batcher.backward(with_loss_weights(sequences, "token_mean"), losses)
        loss, grad_norm = self.optimizer.step(lr, total)
        metrics.add_step(lr=lr, loss=loss, grad_norm=grad_norm)
        result = metrics.means()
        result["tokens"] = result.pop("count")
        result["seconds"] = time.perf_counter() - started
        return result

    def measure(self, sequences: Sequence[TokenSequence]) -> dict[str, float]:
        """See `Learner.offline_loss`; `count` is the number of tokens."""
        metrics = MetricAccumulator(self._batcher.rank)
        for micro in self._batcher.shard(with_loss_weights(sequences, "token_mean")):
            logprobs, _, predicted = self._policy.forward_only(micro.batch, _TEMPERATURE)
            hits = predicted == micro.batch.targets
            found = {"negative_logprob": -logprobs, "token_accuracy": hits}
            metrics.add(found, micro.counts_in_metrics)
        means = metrics.means()
        return {
            "loss": means["negative_logprob"],
            "token_accuracy": means["token_accuracy"],
            "count": means["count"],
        }


class SequenceUpdate:
    """Training on a loss of one number per sequence, such as the log-probability of an answer.

    A first pass computes the numbers, a second pass the gradient: each sequence is weighted by the
    derivative of the loss with respect to its number. The gradient is therefore exact even if an
    example's sequences are in different micro-batches or on different ranks.

    Args:
        model: model to train.
        arguments: arguments of the model's forward pass, after the batch.
        objective: computes the loss.
        optimizer: the model's optimizer.
        batcher: gives this rank its micro-batches.
    """

    def __init__(
        self,
        model: ShardedModel[Any],
        arguments: Sequence[Any],
        objective: Objective,
        optimizer: Optimizer,
        batcher: MicroBatcher,
    ) -> None:
        self._model, self._arguments, self._objective = model, tuple(arguments), objective
        self.optimizer, self._batcher = optimizer, batcher

    def step(self, sequences: Sequence[TokenSequence], lr: float) -> dict[str, float]:
        """See `Learner.offline_step`."""
        started = time.perf_counter()
        loss, gradients, found = self._evaluate(sequences)

        def numbers(micro: MicroBatch[TokenSequence]) -> Tensor:
            return _per_token(self._model.module(micro.batch, *self._arguments))

        metrics = MetricAccumulator(self._batcher.rank)
        total = self._batcher.backward(list(zip(sequences, gradients, strict=True)), numbers)
        # `summed` has the gradient of the loss, but not its value.
        summed, grad_norm = self.optimizer.step(lr, total)
        metrics.add_step(lr=lr, loss=loss + 0.0 * summed, grad_norm=grad_norm)
        result = metrics.means()
        del result["count"]
        result |= {name: value for name, value in found.items() if name != "count"}
        result["tokens"] = float(sum(len(sequence.token_ids) for sequence in sequences))
        result["seconds"] = time.perf_counter() - started
        return result

    def measure(self, sequences: Sequence[TokenSequence]) -> dict[str, float]:
        """See `Learner.offline_loss`."""
        loss, _, metrics = self._evaluate(sequences)
        return {"loss": loss, **metrics}

    def _evaluate(
        self, sequences: Sequence[TokenSequence]
    ) -> tuple[float, list[float], dict[str, float]]:
        """Return the loss, its derivatives [S] by the sequences' numbers, and metrics."""
        numbers = sequence_sums(self._batcher, self._model, self._arguments, sequences)
        numbers.requires_grad_()
        loss, metrics = self._objective(sequences, numbers)
        (gradients,) = torch.autograd.grad(loss, numbers)
        return loss.item(), gradients.tolist(), metrics


def sequence_sums(
    batcher: MicroBatcher,
    model: ShardedModel[Any],
    arguments: Sequence[Any],
    sequences: Sequence[TokenSequence],
) -> Tensor:
    """Return float64[S], a model's numbers summed over each sequence's sampled tokens."""

    def forward(batch: Batch) -> tuple[Tensor, None]:
        return _per_token(model.forward_only(batch, *arguments)), None

    return torch.tensor(
        [sum(own) for own in batcher.score(forward, sequences)[0]], dtype=torch.float64
    )


def _per_token(found: Any) -> Tensor:
    """Return the log-probabilities among a model's scores, or its only output, [N]."""
    numbers: Tensor = found[0] if isinstance(found, tuple) else found
    return numbers


def preference_update(
    policy: ShardedModel[LogprobModel],
    reference: ShardedModel[LogprobModel] | None,
    config: DPOConfig,
    optimizer: Optimizer,
    batcher: MicroBatcher,
) -> SequenceUpdate:
    """Return an update that trains a policy on pairs of answers.

    Metrics: the loss; accuracy, the fraction of pairs whose better answer has the higher implicit
    reward, where ties count one half (TRL counts them as wrong, so its accuracy is 0 before
    training); margin, the mean difference of these rewards; reward_chosen and reward_rejected,
    their means; logprob_chosen and logprob_rejected, mean log-probabilities of whole answers.

    Args:
        policy: model to train.
        reference: a frozen copy of the policy; None if the loss needs no reference.
        config: settings of the loss.
        optimizer: the policy's optimizer.
        batcher: gives this rank its micro-batches.
    """

    def objective(
        sequences: Sequence[TokenSequence], numbers: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        # Pairs alternate: chosen answers are at even places, rejected ones at odd places.
        base = torch.zeros_like(numbers)
        if reference is not None:
            base = sequence_sums(batcher, reference, (_TEMPERATURE,), sequences)
        counts = torch.tensor([s.num_sampled for s in sequences], dtype=torch.float64)
        chosen, rejected = (
            IMPLICIT_REWARDS[config.loss](
                AnswerLogprobs(policy=numbers[k::2], reference=base[k::2], tokens=counts[k::2]),
                config.beta,
            )
            for k in (0, 1)
        )
        loss = preference_losses(chosen, rejected, config, _margins(sequences).to(chosen)).mean()
        logprobs = {
            "logprob_chosen": numbers[0::2].mean().item(),
            "logprob_rejected": numbers[1::2].mean().item(),
        }
        return loss, _compared(chosen, rejected) | logprobs

    return SequenceUpdate(policy, (_TEMPERATURE,), objective, optimizer, batcher)


def reward_update(
    model: ShardedModel[Any], config: RewardModelConfig, optimizer: Optimizer, batcher: MicroBatcher
) -> SequenceUpdate:
    """Return an update that trains a reward model on pairs or labeled replies.

    Pairs have the metrics of `preference_update`, computed from the model's rewards, without
    log-probabilities. Labeled replies have the cross-entropy as loss, and accuracy, the fraction of
    rewards on the right side of 0.

    Args:
        model: model to train; its only output for a sequence is the reward.
        config: settings of the loss.
        optimizer: the model's optimizer.
        batcher: gives this rank its micro-batches; must read last tokens.
    """

    def of_pairs(
        sequences: Sequence[TokenSequence], rewards: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        chosen, rejected = rewards[0::2], rewards[1::2]
        margins = _margins(sequences).to(chosen)
        loss = bradley_terry_losses(chosen, rejected, config.center, margins).mean()
        return loss, _compared(chosen, rejected)

    def of_replies(
        sequences: Sequence[TokenSequence], rewards: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        labels = torch.tensor([_label_of(sequence) for sequence in sequences]).to(rewards)
        loss = binary_cross_entropy_with_logits(rewards, labels)
        right = (rewards > 0) == (labels > 0.5)
        return loss, {"accuracy": right.double().mean().item(), "count": float(len(sequences))}

    objective = of_replies if config.per_turn else of_pairs
    return SequenceUpdate(model, (), objective, optimizer, batcher)


def _label_of(sequence: TokenSequence) -> float:
    assert isinstance(sequence, LabeledSequence), "per_turn needs labels"
    return sequence.label


def _margins(sequences: Sequence[TokenSequence]) -> Tensor:
    """Return the pairs' margins, [P]."""
    return torch.tensor([_margin_of(sequence) for sequence in sequences[::2]])


def _margin_of(sequence: TokenSequence) -> float:
    assert isinstance(sequence, PreferenceSequence), "pairs have margins"
    return sequence.margin


def _compared(chosen: Tensor, rejected: Tensor) -> dict[str, float]:
    """Compute the metrics of P pairs, including their number."""
    right = (1 + (chosen - rejected).sign()) / 2
    return {
        "accuracy": right.mean().item(),
        "margin": (chosen - rejected).mean().item(),
        "reward_chosen": chosen.mean().item(),
        "reward_rejected": rejected.mean().item(),
        "count": float(len(chosen)),
    }
