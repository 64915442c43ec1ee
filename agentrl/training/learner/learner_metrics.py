"""Metrics of one update, and the mismatch between engine and learner before it."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from agentrl.algorithms.core.kl import k3, log_ratio
from agentrl.training.learner.micro_batches import MicroBatcher, with_loss_weights
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import TokenSequence

MAX_COMPARED_SAMPLES = 32
MAX_COMPARED_TOKENS = 16_384
"""Limits of the comparison with the engine; the first sample is compared even if it is longer."""


class MetricAccumulator:
    """Metrics summed over sampled tokens; every rank must add the same names in the same order."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, str] = {}
        self._steps: dict[str, list[float]] = {"loss": [], "grad_norm": [], "lr": []}
        """Values of each optimizer step taken, by name; the first three are the policy's."""
        self._skipped = 0

    def add(self, values: Mapping[str, Tensor], counts: float, count: str = "count") -> None:
        """Add per-token values of one micro-batch.

        Args:
            values: tensors of shape [N] by name.
            counts: 0.0 for a micro-batch that another rank counts, else 1.0.
            count: name of the token count that the means divide by; values over different tokens
                need a different name.
        """
        for name, tensor in values.items():
            self._put(name, tensor.detach().double().sum() * counts)
            self._counts[name] = count
        tokens = max((tensor.numel() for tensor in values.values()), default=0)
        self._put(count, torch.tensor(tokens * counts))

    def add_step(self, **numbers: float) -> bool:
        """Record one optimizer step of any model.

        Returns:
            False if the step was skipped because one of the numbers is not finite.
        """
        if not all(map(math.isfinite, numbers.values())):
            self._skipped += 1
            return False
        for name, value in numbers.items():
            self._steps.setdefault(name, []).append(value)
        return True

    def _put(self, name: str, value: Tensor) -> None:
        # float64, because a step may have millions of tokens.
        zero = torch.zeros((), dtype=torch.float64, device=self._rank.device)
        self._sums[name] = self._sums.get(name, zero) + value.to(zero.device)

    def means(self) -> dict[str, float]:
        """Return means over tokens and steps, and the number of tokens, steps and skipped steps.

        A collective call.
        """
        names = list(self._sums)
        # Sum everything in one collective call. Without names, no rank makes the call.
        totals = (
            self._rank.sum(torch.stack([self._sums[n] for n in names])).tolist() if names else []
        )
        sums = dict(zip(names, totals, strict=True))
        counts = {name: sums.pop(name) for name in {*self._counts.values()}}
        result = {name: sums[name] / max(1.0, counts[of]) for name, of in self._counts.items()}
        for name, values in self._steps.items():
            result[name] = sum(values) / len(values) if values else 0.0
        return result | {
            "count": counts.get("count", 0.0),
            "optimizer_steps": float(len(self._steps["lr"])),
            "skipped": float(self._skipped),
        }


def measure_mismatch(
    samples: Sequence[TokenSequence],
    model: ShardedModel[LogprobModel],
    batcher: MicroBatcher,
    *,
    temperature: float,
) -> dict[str, float]:
    """Compare the engine's log-probabilities with the learner's, before the update.

    Compares only the first samples, within limits, whether or not their advantages are zero.

    A collective call. The result does not depend on the split over ranks and micro-batches.

    Args:
        samples: shuffled samples, the same on every rank.
        model: policy with the engine's weights.
        batcher: gives this rank its micro-batches.
        temperature: the engine's sampling temperature.

    Returns:
        mismatch_k1, mismatch_k3: means over the compared tokens; mismatch_max: the largest
        difference; mismatch_tokens: number of compared tokens; entropy: mean entropy in nats.
        Empty if no tokens were sampled.
    """
    # Comparing all samples of a large step would cost a whole pass.
    chosen: list[TokenSequence] = []
    tokens = 0
    for sample in (sample for sample in samples if sample.num_sampled):
        tokens += len(sample.token_ids)
        if chosen and (tokens > MAX_COMPARED_TOKENS or len(chosen) == MAX_COMPARED_SAMPLES):
            break
        chosen.append(sample)
    rank = batcher.rank
    sums = torch.zeros(4, dtype=torch.float64, device=rank.device)
    peak = torch.zeros((), device=rank.device)
    for micro in batcher.shard(with_loss_weights(chosen, "token_mean")):
        logprobs, entropy, _ = model.forward_only(micro.batch, temperature)
        engine = micro.batch.logprobs
        ratio = log_ratio(engine, logprobs)
        # The tokens were sampled by the engine, so k3 estimates KL(engine | learner).
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
