"""What an episode teaches: advantages, losses and their aggregation, as pure functions.

Shapes: G episodes of a group; T turns of an episode; N sampled tokens; S samples of a batch.
An algorithm is two of these functions and one line in `ALGORITHMS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.plugins import did_you_mean
from agentrl.training import credit
from agentrl.types import ScoredEpisode

MAX_K3 = 10.0
"""The k3 estimate is clamped to this: beyond it one token would outweigh a whole batch."""

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this, either way: exp(20) is still finite in float32."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenLoss:
    """A policy loss, token by token."""

    loss: Tensor
    """[N], to be minimised; carries the gradient."""
    clipped: Tensor
    """bool[N], True where a bound holds the gradient back."""


def log_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """[N] log of the probability ratio between the policy and the one that sampled, clamped."""
    return (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def ppo_clip(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, config: AlgorithmConfig
) -> TokenLoss:
    """PPO's clipped objective with asymmetric bounds and a dual clip.

    max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, at most -c A. Sources:
    arXiv:1707.06347, arXiv:2503.14476 (clip-higher), arXiv:1912.09729 (dual clip).

    Args:
        logprobs: [N] under the policy; carries the gradient.
        old_logprobs: [N] under the policy that sampled.
        advantages: [N]
        config: `clip_low`, `clip_high` and `clip_dual` are used.
    """
    ratio = log_ratio(logprobs, old_logprobs).exp()
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss = torch.maximum(free, bounded)
    ceiling = -config.clip_dual * advantages
    dual = (advantages < 0) & (loss > ceiling)
    return TokenLoss(loss=torch.where(dual, ceiling, loss), clipped=(bounded > free) | dual)


def kl_k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N] the k3 estimate of KL(policy | reference): exp(-d) + d - 1, d = logp - logp_ref.

    Never negative, 0 where both agree (http://joschu.net/blog/kl-approx.html), and at most
    `MAX_K3`, where it has no gradient.
    """
    difference = log_ratio(logprobs, reference)
    return ((-difference).exp() + difference - 1).clamp(max=MAX_K3)


def sample_weights(num_tokens: Sequence[int], aggregate: str) -> list[float]:
    """What one token of each sample weighs in the loss, over the global batch.

    The weights of all tokens sum to 1, so that summing weighted token losses over any split of
    the batch, over micro-batches or over ranks, gives the same loss.

    Args:
        num_tokens: [S] sampled tokens of each sample.
        aggregate: `token_mean` (each token alike) or `sequence_mean` (each sample alike).

    Returns:
        [S]; 0 for a sample without sampled tokens.
    """
    if aggregate == "token_mean":
        total = sum(num_tokens)
        return [1 / total if count else 0.0 for count in num_tokens]
    if aggregate == "sequence_mean":
        samples = sum(1 for count in num_tokens if count)
        return [1 / (samples * count) if count else 0.0 for count in num_tokens]
    raise ConfigError(
        f"algorithm.aggregate={aggregate!r}: must be token_mean or sequence_mean"
        f"{did_you_mean(aggregate, ['token_mean', 'sequence_mean'])}"
    )


@dataclass(slots=True, kw_only=True, frozen=True)
class Algorithm:
    """Credit for turns, and a loss for the tokens that spent it."""

    advantages: Callable[[Sequence[ScoredEpisode], AlgorithmConfig], list[list[float]]]
    loss: Callable[[Tensor, Tensor, Tensor, AlgorithmConfig], TokenLoss]


ALGORITHMS = {
    "grpo": Algorithm(advantages=credit.group_relative, loss=ppo_clip),
}


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in ALGORITHMS:
        raise ConfigError(
            f"algorithm.name={name!r}: no such algorithm{did_you_mean(name, ALGORITHMS)}. "
            f"Known: {', '.join(sorted(ALGORITHMS))}"
        )
    return ALGORITHMS[name]
