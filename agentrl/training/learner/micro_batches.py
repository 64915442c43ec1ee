"""What one rank computes of a batch: its micro-batches, and what their tokens weigh."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.algorithms.losses import token_weights
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching import batches, prefix_tree
from agentrl.training.batching.batches import Packing
from agentrl.training.batching.prefix_tree import Tree
from agentrl.training.learner.parallel import Rank
from agentrl.types import Batch, Sample

Weighed = tuple[Sample, float]
"""A sample, and what each of its sampled tokens weighs in the loss."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Share:
    """One forward and backward pass of one rank."""

    batch: Batch
    rows: Sequence[Sequence[Tree]]
    """Of the samples that were shared out."""
    real: float
    """0.0 where the rank has nothing left to do and only keeps step with the others."""
    told: float
    """1.0 on the one rank that tells of these tokens; the others that share the rows, or keep step,
    compute the same loss."""

    def loss(self, token_losses: Tensor) -> Tensor:
        """This pass's part of the loss over the global batch; see `told` for who adds it up.

        Args:
            token_losses: [N]
        """
        return (token_losses * self.batch.columns["weights"]).sum() * self.real


def weigh(samples: Sequence[Sample], aggregate: str, constant: float = 1.0) -> list[Weighed]:
    """Samples that have tokens to learn from, with the weight of each of these tokens."""
    counts = [batches.num_sampled(sample) for sample in samples]
    weights = token_weights(counts, [sample.episode for sample in samples], aggregate, constant)
    return [
        (sample, weight) for sample, weight in zip(samples, weights, strict=True) if sample.places
    ]


def share(
    weighed: Sequence[Weighed], packing: Packing, model_adapter: ModelAdapter, rank: Rank
) -> Iterator[Share]:
    """This rank's passes over samples that every rank is given.

    All ranks make the same number of passes, as they wait for each other in each; a rank with
    nothing left repeats the last micro-batch and counts it as 0. Ranks that share rows make the
    same passes.

    Args:
        weighed: the same on every rank.
        packing: how they are laid out.
        model_adapter: the model family's.
        rank: this rank.
    """
    samples, weights = [s for s, _ in weighed], [weight for _, weight in weighed]
    parts = batches.micro_batches(samples, packing, model_adapter.image_token_id)
    for start in range(0, len(parts), rank.groups):
        mine = start + rank.group
        real = 1.0 if mine < len(parts) else 0.0
        rows = parts[min(mine, len(parts) - 1)]
        yield Share(
            batch=batches.to_batch(
                samples, rows, model_adapter, weights=weights, device=rank.device
            ),
            rows=rows,
            real=real,
            told=real if rank.speaks else 0.0,
        )


def whole(
    samples: Sequence[Sample], model_adapter: ModelAdapter, device: torch.device | str = "cpu"
) -> Batch:
    """One batch of some samples, each in a row of its own."""
    longest = max(len(sample.token_ids) for sample in samples)
    trees = [
        prefix_tree.alone(index, len(sample.token_ids)) for index, sample in enumerate(samples)
    ]
    (rows,) = prefix_tree.rows(trees, longest * len(samples), fill=False)
    return batches.to_batch(samples, rows, model_adapter, device=device)
