"""Metrics of one update, accumulated over tokens, micro-batches and ranks."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from agentrl.training.learner.parallel import Rank


class MetricAccumulator:
    """Sums over sampled tokens; every rank must add the same names in the same order.

    Args:
        rank: this rank.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, str] = {}
        self._notes: dict[str, list[float]] = {}
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._rates: list[float] = []
        self._skipped = 0

    def add(self, values: Mapping[str, Tensor], counts: float, count: str = "count") -> None:
        """Add per-token values of one micro-batch.

        Args:
            values: [N] each, by name.
            counts: 0.0 for a micro-batch that another rank counts, else 1.0.
            count: name of the token count that the means divide by; values over other tokens need
                another name.
        """
        for name, tensor in values.items():
            self._put(name, tensor.detach().double().sum() * counts)
            self._counts[name] = count
        tokens = max((tensor.numel() for tensor in values.values()), default=0)
        self._put(count, torch.tensor(tokens * counts))

    def add_step(self, lr: float, loss: float, grad_norm: float) -> bool:
        """Record one optimizer step.

        Returns:
            False if it was skipped because loss or gradient norm are not finite.
        """
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._skipped += 1
            return False
        self._losses.append(loss)
        self._norms.append(grad_norm)
        self._rates.append(lr)
        return True

    def note(self, name: str, value: float) -> None:
        """Record one number per optimizer step, such as the critic's loss; `means` averages it."""
        self._notes.setdefault(name, []).append(value)

    def _put(self, name: str, value: Tensor) -> None:
        zero = torch.zeros((), dtype=torch.float64, device=self._rank.device)
        self._sums[name] = self._sums.get(name, zero) + value.to(zero.device)

    def means(self) -> dict[str, float]:
        """Means over tokens and steps, and counts of tokens, steps and skips; a collective call."""
        names = list(self._sums)
        sums = dict(zip(names, self._summed(names), strict=True))
        counts = {name: sums.pop(name) for name in {*self._counts.values()}}
        result = {name: sums[name] / max(1.0, counts[of]) for name, of in self._counts.items()}
        for name, values in (
            ("loss", self._losses),
            ("grad_norm", self._norms),
            ("lr", self._rates),
        ):
            result[name] = sum(values) / len(values) if values else 0.0
        result |= {name: sum(values) / len(values) for name, values in self._notes.items()}
        return result | {
            "count": counts.get("count", 0.0),
            "optimizer_steps": float(len(self._losses)),
            "skipped": float(self._skipped),
        }

    def _summed(self, names: list[str]) -> list[float]:
        if not names:
            return []
        totals: list[float] = self._rank.sum(torch.stack([self._sums[n] for n in names])).tolist()
        return totals
