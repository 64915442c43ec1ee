"""Numbers of one update, added up over tokens, micro-batches and ranks."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from agentrl.training.parallel import Rank


class Tally:
    """Sums over sampled tokens; every rank must add the same names in the same order.

    Args:
        rank: this rank.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._sums: dict[str, Tensor] = {}
        self._peak = torch.zeros((), device=rank.device)
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._rates: list[float] = []
        self._skipped = 0

    @property
    def steps(self) -> int:
        """Optimizer steps so far, the skipped ones included."""
        return len(self._losses) + self._skipped

    def add(self, values: Mapping[str, Tensor], real: float) -> None:
        """Add [N] values of the tokens of one micro-batch.

        Args:
            values: by name.
            real: 0.0 for a micro-batch that another rank counts.
        """
        count = 0
        for name, tensor in values.items():
            self._put(name, tensor.detach().double().sum() * real)
            count = tensor.numel()
        self._put("count", torch.tensor(count * real))

    def add_mismatch(self, log_ratio: Tensor, k3: Tensor, real: float) -> None:
        """Compare engine and learner, before any step moved the learner away.

        Args:
            log_ratio: [N] the engine's log-probabilities minus the learner's.
            k3: [N] the k3 estimate of KL(engine | learner).
            real: as in `add`.
        """
        self._put("mismatch_k1", log_ratio.double().sum() * real)
        self._put("mismatch_k3", k3.double().sum() * real)
        self._put("mismatch_count", torch.tensor(log_ratio.numel() * real))
        if log_ratio.numel() and real:
            self._peak = torch.maximum(self._peak, log_ratio.abs().max())

    def add_step(self, lr: float, loss: float, grad_norm: float) -> bool:
        """Note one optimizer step.

        Returns:
            False if it was skipped, as loss or gradient norm are not finite.
        """
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._skipped += 1
            return False
        self._losses.append(loss)
        self._norms.append(grad_norm)
        self._rates.append(lr)
        return True

    def _put(self, name: str, value: Tensor) -> None:
        zero = torch.zeros((), dtype=torch.float64, device=self._rank.device)
        self._sums[name] = self._sums.get(name, zero) + value.to(zero.device)

    def means(self) -> dict[str, float]:
        """Means over all tokens and steps, `count` tokens, steps and skips; a collective call."""
        names = list(self._sums)
        sums = dict(zip(names, self._summed(names), strict=True))
        count, compared = sums.pop("count", 0.0), sums.pop("mismatch_count", 0.0)
        result = {
            name: value / max(1.0, compared if name.startswith("mismatch") else count)
            for name, value in sums.items()
        }
        if compared:
            result["mismatch_max"] = self._rank.max(self._peak).item()
        for name, values in (
            ("loss", self._losses),
            ("grad_norm", self._norms),
            ("lr", self._rates),
        ):
            result[name] = sum(values) / len(values) if values else 0.0
        return result | {
            "count": count,
            "optimizer_steps": float(len(self._losses)),
            "skipped": float(self._skipped),
        }

    def _summed(self, names: list[str]) -> list[float]:
        if not names:
            return []
        totals: list[float] = self._rank.sum(torch.stack([self._sums[n] for n in names])).tolist()
        return totals
