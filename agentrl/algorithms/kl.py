"""How far two policies are apart on sampled tokens, as pure functions of tensors.

Shapes: N sampled tokens. Everywhere d = logp - logp_ref, clamped to +-20. Source of k1, k2 and k3:
J. Schulman, "Approximating KL Divergence", 2020, http://joschu.net/blog/kl-approx.html.
"""

from collections.abc import Callable

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this, either way: exp(20) is still finite in float32."""

MAX_K3 = 10.0
"""The k3 estimate is clamped to this: beyond it one token would outweigh a whole batch."""


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """[N] log of the probability ratio between two policies, clamped."""
    return (logprobs - other).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] d: without bias, of high variance; as a loss its expected gradient is 0.

    Source: Schulman's note.
    """
    return log_ratio(logprobs, reference)


def absolute(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] |d|, never negative; its gradient has the same size for every token.

    No paper is known to us: it is verl's `kl_penalty=abs`.
    """
    return log_ratio(logprobs, reference).abs()


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] d^2 / 2: its gradient is that of the divergence, on samples of the policy itself.

    Source: Schulman's note.
    """
    return log_ratio(logprobs, reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] exp(-d) + d - 1: without bias, never negative, 0 where both agree.

    At most `MAX_K3`, where it has no gradient. Source: Schulman's note.
    """
    difference = log_ratio(logprobs, reference)
    return (torch.expm1(-difference) + difference).clamp(0.0, MAX_K3)


def k3_plus(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] the value of k3 with the gradient of k2: each is right where the other is not.

    No paper is known to us: it is verl's `kl_penalty=k3+`. Its parts are of Schulman's note.
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


def adapted(coefficient: float, measured: float, target: float, horizon: float) -> float:
    """The next coefficient of a KL term that is kept near a target.

    coefficient * (1 + clip(measured / target - 1, -0.2, 0.2) / horizon). Source:
    arXiv:1909.08593, section 2.2.

    Args:
        coefficient: of the step before.
        measured: the mean divergence per token of that step.
        target: where it should be, above 0.
        horizon: steps over which a full error changes the coefficient by a fifth.
    """
    error = max(-0.2, min(0.2, measured / target - 1))
    return coefficient * (1 + error / horizon)
