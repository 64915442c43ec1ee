"""Supervised steps: maximum likelihood on demonstrated replies."""

import time
from collections.abc import Sequence

import torch

from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.logprob_model import LogprobModel
from agentrl.training.learner.metric_accumulator import MetricAccumulator
from agentrl.training.learner.micro_batches import shard_microbatches, weighted
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel import Rank
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import TokenSequence


class SupervisedTrainer:
    """Supervised training of the policy, with its own optimizer.

    Args:
        model: the policy, trained in place.
        optimizer: of the supervised steps alone.
        model_adapter: the model family's.
        rank: this rank.
        packing: how samples are laid out in micro-batches.
    """

    def __init__(
        self,
        model: ShardedModel[LogprobModel],
        optimizer: Optimizer,
        model_adapter: ModelAdapter,
        rank: Rank,
        packing: Packing,
    ) -> None:
        self._model = model
        self.optimizer = optimizer
        self._model_adapter = model_adapter
        self._rank = rank
        self._packing = packing

    def step(self, sequences: Sequence[TokenSequence], lr: float) -> dict[str, float]:
        """See `Learner.clone`."""
        started = time.perf_counter()
        metrics = MetricAccumulator(self._rank)
        total = torch.zeros((), device=self._rank.device)
        for micro in shard_microbatches(
            weighted(sequences, "token_mean"), self._packing, self._model_adapter, self._rank
        ):
            logprobs, entropy, hits = self._model.module(micro.batch, 1.0)
            loss = micro.loss(-logprobs)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * micro.counts_in_metrics
            metrics.add({"token_accuracy": hits, "entropy": entropy}, micro.counts_in_metrics)
        metrics.add_step(lr, *self.optimizer.step(lr, total))
        result = metrics.means()
        result["tokens"] = result.pop("count")
        result["seconds"] = time.perf_counter() - started
        return result
