"""Importance weights for tokens that a slightly different policy sampled, and their staleness.

An engine computes in another precision and order than the learner, and may be some updates behind:
w = pi_old / pi_rollout, where pi_old is the learner before an update. Pure functions of tensors;
shapes: N sampled tokens.
"""

import torch
from torch import Tensor

from agentrl.algorithms.kl import log_ratio
from agentrl.algorithms.losses import turn_means
from agentrl.config import AlgorithmConfig


def weights(old: Tensor, rollout: Tensor, turn: Tensor, config: AlgorithmConfig) -> Tensor:
    """[N] the factor of each token's loss; without gradient.

    `token_truncate`: w, at most `importance_high` (TIS, https://fengyao.notion.site/off-policy-rl).
    `token_mask`: w within [`importance_low`, `importance_high`], 0 outside (IcePop,
    https://ringtech.notion.site/icepop). `sequence_truncate`, `sequence_mask`: the same with the
    product of w over the tokens of a reply. `none`: 1.

    Args:
        old: [N] log-probabilities under the learner before the update.
        rollout: [N] log-probabilities that the engine sampled with.
        turn: int64[N], equal for the tokens of one reply.
        config: `correction`, `importance_low` and `importance_high` are used.
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
    kept = (ratio >= config.importance_low) & (ratio <= config.importance_high)
    return torch.where(kept, ratio, 0.0)


def fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """bool[N], True for tokens whose weights were at most `bound` versions behind `version`."""
    return version - versions <= bound
