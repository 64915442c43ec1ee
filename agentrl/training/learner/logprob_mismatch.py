"""Mismatch between the engine's log-probabilities and the learner's, before the update."""

from collections.abc import Sequence

import torch

from agentrl.algorithms.kl import k3, log_ratio
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.logprob_model import LogprobModel
from agentrl.training.learner.micro_batches import shard_microbatches, weighted
from agentrl.training.learner.parallel import Rank
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import TokenSequence

MAX_SAMPLES = 32
MAX_TOKENS = 16_384
"""Bounds of the comparison; the first sample is compared however long it is."""


def measure(
    samples: Sequence[TokenSequence],
    model: ShardedModel[LogprobModel],
    model_adapter: ModelAdapter,
    rank: Rank,
    *,
    temperature: float,
    packing: Packing,
) -> dict[str, float]:
    """Compare the first samples, within bounds, whether their advantages are zero or not.

    A collective call. The result does not depend on the split over ranks and micro-batches.

    Args:
        samples: shuffled, the same on every rank.
        model: with the weights that the engine has.
        model_adapter: the model family's.
        rank: this rank.
        temperature: that the engine sampled with.
        packing: how samples are laid out in micro-batches.

    Returns:
        mismatch_k1, mismatch_k3: means over the compared tokens; mismatch_max: the largest
        difference; mismatch_tokens: number of compared tokens; entropy: its mean, in nats. Empty
        if no tokens were sampled.
    """
    sums = torch.zeros(4, dtype=torch.float64, device=rank.device)
    peak = torch.zeros((), device=rank.device)
    for micro in shard_microbatches(
        weighted(_first(samples), "token_mean"), packing, model_adapter, rank
    ):
        logprobs, entropy, _ = model.forward_only(micro.batch, temperature)
        engine = micro.batch.logprobs
        ratio = log_ratio(engine, logprobs)
        # The engine sampled the tokens: k3 estimates KL(engine | learner).
        found = torch.stack([ratio, k3(engine, logprobs), entropy, torch.ones_like(ratio)])
        sums += found.double().sum(-1) * micro.counts_in_metrics
        peak = torch.maximum(peak, ratio.abs().max() * micro.counts_in_metrics)
    first, third, entropies, count = rank.sum(sums).tolist()
    if not count:
        return {}
    return {
        "mismatch_k1": first / count,
        "mismatch_k3": third / count,
        "mismatch_max": rank.max(peak).item(),
        "mismatch_tokens": count,
        "entropy": entropies / count,
    }


def _first(samples: Sequence[TokenSequence]) -> list[TokenSequence]:
    """The first samples with sampled tokens, as many as the bounds allow."""
    found: list[TokenSequence] = []
    tokens = 0
    for sample in samples:
        if not sample.num_sampled:
            continue
        tokens += len(sample.token_ids)
        if found and (tokens > MAX_TOKENS or len(found) == MAX_SAMPLES):
            break
        found.append(sample)
    return found
