"""The micro-batches that each rank computes, and their tokens' loss weights."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

import torch
from torch import Tensor

from agentrl.algorithms.core.loss_aggregation import token_weights
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching import collate, prefix_tree
from agentrl.training.batching.packing import Packing, pack_rows
from agentrl.training.batching.rank_balance import pack_for_ranks
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.types import Batch, TokenSequence

S = TypeVar("S", bound=TokenSequence)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True, frozen=True)
class MicroBatch(Generic[S]):
    """One forward and backward pass of one rank."""

    batch: Batch
    indices: list[int]
    """Indices of the samples in the sequence passed to `MicroBatcher.shard`."""
    samples: list[S]
    """Samples in the order of the batch's sampled tokens."""
    is_real: float
    """0.0 if the rank has no micro-batch left and only takes part in collective operations."""
    counts_in_metrics: float
    """1.0 if this rank counts the tokens in metrics; 0.0 if the pass is not real, or if another
    rank that shares the rows, and so computes the same loss, counts them."""

    def loss(self, token_losses: Tensor) -> Tensor:
        """Return this pass's part of the loss over the global batch, for the backward pass.

        Args:
            token_losses: [N] losses of the sampled tokens.
        """
        return (token_losses * self.batch.weights).sum() * self.is_real


def loss_weights(
    samples: Sequence[TokenSequence], aggregate: str, constant: float = 1.0
) -> list[float]:
    """Return the loss weight of each sample's tokens, relative to all of a step's samples."""
    counts = [sample.num_sampled for sample in samples]
    return token_weights(counts, [sample.episode for sample in samples], aggregate, constant)


def with_loss_weights(samples: Sequence[S], aggregate: str) -> list[tuple[S, float]]:
    """Pair each sample that has sampled tokens with its tokens' loss weight."""
    weights = loss_weights(samples, aggregate)
    return [
        (sample, weight)
        for sample, weight in zip(samples, weights, strict=True)
        if sample.num_sampled
    ]


@dataclass(slots=True, kw_only=True, frozen=True)
class MicroBatcher:
    """Divides samples into micro-batches and distributes them over the ranks."""

    packing: Packing
    """How samples are laid out."""
    model_adapter: ModelAdapter
    rank: Rank

    def shard(self, samples: Sequence[tuple[S, float]]) -> Iterator[MicroBatch[S]]:
        """Yield this rank's micro-batches of samples that every rank has.

        Ranks synchronize in each pass, so all make the same number of passes, and the micro-batches
        of a pass cost about the same; see `pack_for_ranks`. A rank with nothing left repeats the
        last, cheapest micro-batch and counts it as 0. Ranks that share rows make the same passes.

        Args:
            samples: samples with their loss weights; the same on every rank.
        """
        prepared, device = self._prepare(samples), self.rank.device
        # On a CPU, a preparing thread would compete with computation for the cores.
        if device.type == "cpu":
            yield from prepared
            return
        for micro in prefetch(prepared):
            yield replace(micro, batch=collate.upload(micro.batch, device))

    def _prepare(self, samples: Sequence[tuple[S, float]]) -> Iterator[MicroBatch[S]]:
        """Yield the micro-batches in memory that the rank's device can read."""
        rank, adapter = self.rank, self.model_adapter
        plain, weights = [sample for sample, _ in samples], [weight for _, weight in samples]
        packed = pack_for_ranks(plain, self.packing, adapter.image_token_id, rank.groups)
        for start in range(0, len(packed), rank.groups):
            mine = start + rank.group
            is_real = 1.0 if mine < len(packed) else 0.0
            rows = packed[min(mine, len(packed) - 1)]
            indices = collate.sequence_order(rows)
            batch = collate.build_batch(plain, rows, adapter, weights=weights)
            yield MicroBatch(
                batch=batch if rank.device.type == "cpu" else collate.pin(batch, rank.device),
                indices=indices,
                samples=[plain[index] for index in indices],
                is_real=is_real,
                counts_in_metrics=is_real if rank.is_group_leader else 0.0,
            )

    def backward(
        self,
        samples: Sequence[tuple[S, float]],
        token_losses: Callable[[MicroBatch[S]], Tensor],
    ) -> Tensor:
        """Accumulate the gradient of the loss, in a forward and a backward pass per micro-batch.

        Args:
            samples: see `shard`.
            token_losses: computes the losses of a micro-batch's sampled tokens, [N].

        Returns:
            This rank's part of the loss.
        """
        total = torch.zeros((), device=self.rank.device)
        for micro in self.shard(samples):
            loss = micro.loss(token_losses(micro))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * micro.counts_in_metrics
        return total

    def score(
        self,
        forward: Callable[[Batch], tuple[Tensor, Tensor | None]],
        sequences: Sequence[TokenSequence],
    ) -> tuple[list[tuple[float, ...]], list[float]]:
        """Compute one number per sampled token and, optionally, one per sequence.

        A collective call; every rank computes its micro-batches and gets all results.

        Args:
            forward: computes, without gradient, [N] numbers for a batch's sampled tokens, and [S]
                numbers for its sequences or None.
            sequences: S sequences, the same on every rank, each with n sampled tokens.

        Returns:
            [S][n] numbers of the tokens, and [S] numbers of the sequences.
        """

        def one_row(batch: Batch) -> tuple[Tensor, Tensor | None]:
            per_token, per_sequence = forward(batch)
            return per_token.unsqueeze(0), per_sequence

        (numbers,), totals = self.score_rows(one_row, sequences, 1)
        return numbers, totals

    def score_rows(
        self,
        forward: Callable[[Batch], tuple[Tensor, Tensor | None]],
        sequences: Sequence[TokenSequence],
        count: int,
    ) -> tuple[list[list[tuple[float, ...]]], list[float]]:
        """Compute `count` numbers per sampled token, [count, N] in a batch; see `score`.

        Returns:
            [count][S][n] numbers of the tokens, and [S] numbers of the sequences.
        """
        device = self.rank.device
        counts = [sequence.num_sampled for sequence in sequences]
        offsets = torch.tensor([0, *counts]).cumsum(0).tolist()
        tokens = torch.zeros(count, offsets[-1], device=device)
        totals = torch.zeros(len(sequences), device=device)
        for micro in self.shard(with_loss_weights(sequences, "token_sum")):
            per_token, per_sequence = forward(micro.batch)
            # Ranks that share rows have the same numbers, so only one of them adds its own.
            at = torch.cat([torch.arange(offsets[i], offsets[i + 1]) for i in micro.indices])
            tokens[:, at.to(device)] += per_token * micro.counts_in_metrics
            if per_sequence is not None:
                index = torch.tensor(micro.indices, device=device)
                totals[index] += per_sequence * micro.counts_in_metrics
        values = self.rank.sum(tokens).tolist()
        return (
            [[tuple(row[begin:end]) for begin, end in pairwise(offsets)] for row in values],
            self.rank.sum(totals).tolist(),
        )


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, preparing each in a thread while the caller processes the previous item.

    At most one item is prepared ahead. The thread ends with this generator, even if the caller
    closes or drops it early. An exception from `items` is raised in place of its item.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        upcoming = thread.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = thread.submit(next, items, None)
            yield item


def single_batch(sequences: Sequence[TokenSequence], model_adapter: ModelAdapter) -> Batch:
    """Collate all sequences into one batch on the CPU, each in its own row."""
    longest = max(len(sequence.token_ids) for sequence in sequences)
    trees = [
        prefix_tree.single_sequence(index, len(sequence.token_ids))
        for index, sequence in enumerate(sequences)
    ]
    (rows,) = pack_rows(trees, longest * len(sequences), fill=False)
    return collate.upload(collate.build_batch(sequences, rows, model_adapter), torch.device("cpu"))
