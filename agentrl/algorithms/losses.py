"""Policy losses per token, as pure functions of tensors, and the weights of each token.

Importance weights correct for tokens that a slightly different policy sampled: an engine computes
in another precision and order than the learner, and may be some updates behind. w = pi_old /
pi_rollout, where pi_old is the learner before an update.

Shapes: N sampled tokens, of any number of turns; S samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.algorithms.kl import log_ratio
from agentrl.config import AlgorithmConfig


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenLoss:
    """A policy loss per token."""

    loss: Tensor
    """[N], to be minimized; carries the gradient."""
    clipped: Tensor
    """bool[N], True where clipping removes the gradient."""


def ppo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    turn: Tensor,
    config: AlgorithmConfig,
) -> TokenLoss:
    """PPO's clipped objective with asymmetric bounds and a dual clip.

    max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, at most -c A. Sources:
    arXiv:1707.06347, arXiv:2503.14476 (DAPO's clip-higher), arXiv:1912.09729 (dual clip).

    Args:
        logprobs: [N] under the policy; carries the gradient.
        old_logprobs: [N] under the policy that sampled.
        advantages: [N]
        turn: int64[N], equal for the tokens of one reply; not used.
        config: `clip_low`, `clip_high` and `clip_dual` are used.
    """
    return _clipped(log_ratio(logprobs, old_logprobs).exp(), advantages, config)


def _clipped(ratio: Tensor, advantages: Tensor, config: AlgorithmConfig) -> TokenLoss:
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss = torch.maximum(free, bounded)
    ceiling = -config.clip_dual * advantages
    dual = (advantages < 0) & (loss > ceiling)
    return TokenLoss(loss=torch.where(dual, ceiling, loss), clipped=(bounded > free) | dual)


def gspo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    turn: Tensor,
    config: AlgorithmConfig,
) -> TokenLoss:
    """The clipped objective with one ratio per reply: the geometric mean of its tokens' ratios.

    s = exp(mean(log r)) over the reply, in the form sg[s] pi / sg[pi], so that each token may have
    its own advantage. The sequence is one turn's reply, so that the loss does not depend on how an
    episode is split into samples. Source: arXiv:2507.18071.

    Args:
        logprobs: [N] under the policy; carries the gradient.
        old_logprobs: [N] under the policy that sampled.
        advantages: [N]
        turn: int64[N], equal for the tokens of one reply.
        config: `clip_low`, `clip_high` and `clip_dual` are used.
    """
    ratio = log_ratio(logprobs, old_logprobs)
    mean = turn_means(ratio.detach(), turn)
    return _clipped((mean + logprobs - logprobs.detach()).exp(), advantages, config)


def turn_means(values: Tensor, turn: Tensor) -> Tensor:
    """[N] the mean of `values` over the tokens of the same turn."""
    _, place, count = torch.unique(turn, return_inverse=True, return_counts=True)
    sums = values.new_zeros(len(count)).index_add(0, place, values)
    means: Tensor = (sums / count)[place]
    return means


def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    turn: Tensor,
    config: AlgorithmConfig,
) -> TokenLoss:
    """-sg[clip(r, 1 - low, 1 + high)] A logp: the ratio is clipped; every token keeps a gradient.

    Source: MiniMax-M1, arXiv:2506.13585.

    Args:
        logprobs: [N] under the policy; carries the gradient.
        old_logprobs: [N] under the policy that sampled.
        advantages: [N]
        turn: int64[N], equal for the tokens of one reply; not used.
        config: `clip_low` and `clip_high` are used.
    """
    ratio = log_ratio(logprobs, old_logprobs).exp().detach()
    weight = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    return TokenLoss(loss=-weight * advantages * logprobs, clipped=weight != ratio)


def sapo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    turn: Tensor,
    config: AlgorithmConfig,
) -> TokenLoss:
    """-A (4 / tau) sigmoid(tau (r - 1)): a soft gate instead of clipping.

    The gradient equals the plain policy gradient at r = 1 and fades on both sides. Source:
    arXiv:2511.20347.

    Args:
        logprobs: [N] under the policy; carries the gradient.
        old_logprobs: [N] under the policy that sampled.
        advantages: [N]
        turn: int64[N], equal for the tokens of one reply; not used.
        config: `tau_positive` and `tau_negative` are used, by the sign of the advantage.
    """
    ratio = log_ratio(logprobs, old_logprobs).exp()
    tau = torch.where(advantages > 0, config.tau_positive, config.tau_negative)
    loss = -advantages * 4 / tau * torch.sigmoid(tau * (ratio - 1))
    return TokenLoss(loss=loss, clipped=torch.zeros_like(loss, dtype=torch.bool))


Loss = Callable[[Tensor, Tensor, Tensor, Tensor, AlgorithmConfig], TokenLoss]
LOSSES: dict[str, Loss] = {"ppo": ppo, "gspo": gspo, "cispo": cispo, "sapo": sapo}


def token_weights(
    num_tokens: Sequence[int], episodes: Sequence[int], aggregate: str, constant: float = 1.0
) -> list[float]:
    """Weight of each sample's tokens in the loss over the global batch.

    The sum of weighted token losses is the same however the batch is split over micro-batches and
    ranks, and, as a sequence is a whole episode, however episodes are split into samples.

    Args:
        num_tokens: [S] sampled tokens of each sample.
        episodes: [S] equal for the samples of one episode.
        aggregate: with n sampled tokens in all, of m episodes that have any, n_e of episode e:
            `token_mean` 1 / n (DAPO, arXiv:2503.14476); `sequence_mean` 1 / (m n_e), the mean over
            episodes of the mean over their tokens (GRPO, arXiv:2402.03300); `sequence_sum` 1 / m,
            the mean of their sums; `constant` 1 / (m * constant) (Dr.GRPO, arXiv:2503.20783);
            `token_sum` 1.
        constant: in tokens.

    Returns:
        [S]; 0 for a sample without sampled tokens.
    """
    tokens_of_episode: dict[int, int] = {}
    for episode, count in zip(episodes, num_tokens, strict=True):
        tokens_of_episode[episode] = tokens_of_episode.get(episode, 0) + count
    total, m = sum(num_tokens), sum(1 for count in tokens_of_episode.values() if count)
    weight_fn: dict[str, Callable[[int], float]] = {
        "token_mean": lambda _: 1 / total,
        "sequence_mean": lambda own: 1 / (m * own),
        "sequence_sum": lambda _: 1 / m,
        "constant": lambda _: 1 / (m * constant),
        "token_sum": lambda _: 1.0,
    }
    return [
        weight_fn[aggregate](tokens_of_episode[episode]) if count else 0.0
        for episode, count in zip(episodes, num_tokens, strict=True)
    ]


def importance_weights(
    old: Tensor, rollout: Tensor, turn: Tensor, config: AlgorithmConfig
) -> Tensor:
    """[N] the factor of each token's loss; without gradient.

    `token_truncate`: w, at most `importance_high` (TIS, https://fengyao.notion.site/off-policy-rl).
    `token_mask`: w within [`importance_low`, `importance_high`], 0 outside (IcePop,
    https://ringtech.notion.site/icepop). `sequence_truncate`, `sequence_mask`: the same with the
    product of w over the tokens of a reply. `none`: 1.

    Args:
        old: [N] log-probabilities under the learner before the update.
        rollout: [N] log-probabilities that the engine sampled with.
        turn: int64[N], equal for the tokens of one reply.
        config: `importance_correction`, `importance_low` and `importance_high` are used.
    """
    if config.importance_correction == "none":
        return torch.ones_like(old)
    ratio = log_ratio(old, rollout).detach()
    level, action = config.importance_correction.split("_")
    if level == "sequence":
        _, place, count = torch.unique(turn, return_inverse=True, return_counts=True)
        total = turn_means(ratio, turn) * count[place]
        ratio = log_ratio(total, torch.zeros_like(total))
    ratio = ratio.exp()
    if action == "truncate":
        return ratio.clamp(max=config.importance_high)
    in_range = (ratio >= config.importance_low) & (ratio <= config.importance_high)
    return torch.where(in_range, ratio, 0.0)


def is_fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """bool[N], True for tokens whose weights were at most `bound` versions behind `version`."""
    return version - versions <= bound
