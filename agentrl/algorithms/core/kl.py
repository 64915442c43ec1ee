"""KL divergence estimates on sampled tokens, as pure functions of tensors.

Shapes: N sampled tokens. Everywhere d = logp - logp_ref, clamped to +-20. Source of k1, k2 and k3:
J. Schulman, "Approximating KL Divergence", 2020, http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to [-20, 20]: exp(20) is still finite in float32."""

MAX_K3 = 10.0
"""Upper bound of the k3 estimate, so that one token cannot outweigh a whole batch."""


def bounded(log_ratios: Tensor) -> Tensor:
    """Clamp log-ratios of tokens or of whole replies."""
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """Return [N] the log of the probability ratio between two policies, clamped."""
    return bounded(logprobs - other)


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return [N] d: unbiased, with high variance; as a loss, its expected gradient is 0.

    Source: Schulman's note.
    """
    return log_ratio(logprobs, reference)


def absolute(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return [N] |d|: never negative, with a gradient of the same magnitude for every token.

    Source: verl's `kl_penalty=abs`; we know of no paper.
    """
    return log_ratio(logprobs, reference).abs()


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return [N] d^2 / 2, whose expected gradient on the policy's own samples is the KL's.

    Source: Schulman's note.
    """
    return log_ratio(logprobs, reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return [N] exp(-d) + d - 1: unbiased, never negative, 0 where both agree.

    Clamped to `MAX_K3`, beyond which it has no gradient. Source: Schulman's note.
    """
    # Use expm1, because exp(-d) - 1 would lose precision where both nearly agree.
    difference = log_ratio(logprobs, reference)
    return ((-difference).expm1() + difference).clamp(0.0, MAX_K3)


def k3_plus(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return [N] the unbiased value of k3 with the unbiased gradient of k2.

    Source: verl's `kl_penalty=k3+`, combining parts of Schulman's note; we know of no paper.
    """
    gradient = k2(logprobs, reference)
    return gradient + (k3(logprobs, reference) - gradient).detach()


ESTIMATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "abs": absolute,
    "k2": k2,
    "k3": k3,
    "k3+": k3_plus,
}


def adapt_coefficient(coefficient: float, measured: float, target: float, horizon: float) -> float:
    """Adapt the KL coefficient for the next step, to keep the KL near a target.

    coefficient * (1 + clip(measured / target - 1, -0.2, 0.2) / horizon). Source:
    arXiv:1909.08593, section 2.2.

    Args:
        coefficient: coefficient of the previous step.
        measured: mean KL per token in the previous step.
        target: desired KL per token, above 0.
        horizon: time constant in steps: a clipped error changes the coefficient by a fifth in
            this many steps.

    """
    error = max(-0.2, min(0.2, measured / target - 1))
    return coefficient * (1 + error / horizon)
