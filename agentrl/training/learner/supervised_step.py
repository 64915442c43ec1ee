"""Supervised steps: maximum likelihood on demonstrated replies."""

import time
from collections.abc import Sequence

import torch

from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.batches import Packing
from agentrl.training.learner.metric_accumulator import Tally
from agentrl.training.learner.micro_batches import share, weigh
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel import Rank
from agentrl.training.learner.sharded_model import Sharded
from agentrl.training.learner.token_scorer import TokenScorer
from agentrl.types import Sample


class Cloner:
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
        model: Sharded[TokenScorer],
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

    def step(self, samples: Sequence[Sample], lr: float) -> dict[str, float]:
        """See `Learner.clone`."""
        started = time.perf_counter()
        tally = Tally(self._rank)
        total = torch.zeros((), device=self._rank.device)
        for part in share(
            weigh(samples, "token_mean"), self._packing, self._model_adapter, self._rank
        ):
            logprobs, entropy, hits = self._model.scorer(part.batch, 1.0)
            loss = part.loss(-logprobs)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * part.told
            tally.add({"token_accuracy": hits, "entropy": entropy}, part.told)
        tally.add_step(lr, *self.optimizer.step(lr, total))
        metrics = tally.means()
        metrics["tokens"] = metrics.pop("count")
        metrics["seconds"] = time.perf_counter() - started
        return metrics
