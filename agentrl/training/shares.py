"""What one rank computes of a batch: its micro-batches, and what their tokens weigh."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.policies.kits import Kit
from agentrl.training import batching
from agentrl.training.algorithms import sample_weights
from agentrl.training.parallel import Rank
from agentrl.types import Batch, Sample

Weighed = tuple[Sample, float]
"""A sample, and what each of its sampled tokens weighs in the loss."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Share:
    """One forward and backward pass of one rank."""

    batch: Batch
    weights: Tensor
    """[N], of the sampled tokens; over the global batch they sum to 1."""
    real: float
    """0.0 where the rank has nothing left to do and only keeps step with the others."""

    def loss(self, token_losses: Tensor) -> Tensor:
        """This pass's part of the loss over the global batch.

        Args:
            token_losses: [N]
        """
        return (token_losses * self.weights).sum() * self.real


def weigh(samples: Sequence[Sample], aggregate: str) -> list[Weighed]:
    """Samples that have tokens to learn from, with the weight of each of these tokens."""
    counts = [batching.num_sampled(sample) for sample in samples]
    pairs = zip(samples, sample_weights(counts, aggregate), strict=True)
    return [(sample, weight) for sample, weight in pairs if weight]


def share(weighed: Sequence[Weighed], max_tokens: int, kit: Kit, rank: Rank) -> Iterator[Share]:
    """This rank's passes over samples that every rank is given.

    All ranks make the same number of passes, as they wait for each other in each; a rank with
    nothing left repeats the last micro-batch and counts it as 0.

    Args:
        weighed: the same on every rank.
        max_tokens: padded tokens of one pass, at most.
        kit: the model family's.
        rank: this rank.
    """
    parts = batching.micro_batches([len(sample.token_ids) for sample, _ in weighed], max_tokens)
    for start in range(0, len(parts), rank.world_size):
        mine = start + rank.number
        chosen = [weighed[i] for i in parts[min(mine, len(parts) - 1)]]
        batch = batching.to_batch([sample for sample, _ in chosen], kit, rank.device)
        weights = torch.tensor([weight for _, weight in chosen], device=rank.device)
        yield Share(
            batch=batch,
            weights=weights.repeat_interleave(batch.loss_mask.sum(-1)),
            real=1.0 if mine < len(parts) else 0.0,
        )
