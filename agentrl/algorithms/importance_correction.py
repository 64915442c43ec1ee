"""What to do about tokens that another policy sampled than the one that is trained.

An engine computes in another precision and order than the learner, and may be some updates behind:
w = pi_old / pi_rollout, where pi_old is the learner before an update. As pure functions of tensors;
shapes: N sampled tokens.
"""

import torch
from torch import Tensor

from agentrl.algorithms.kl import log_ratio
from agentrl.algorithms.losses import turn_means
from agentrl.config import AlgorithmConfig


def weights(old: Tensor, rollout: Tensor, turn: Tensor, config: AlgorithmConfig) -> Tensor:
    """[N] what each token's loss is multiplied by; without gradient.

    `token_truncate`: w, at most `correction_high` (TIS, https://fengyao.notion.site/off-policy-rl).
    `token_mask`: w within [`correction_low`, `correction_high`], 0 outside (IcePop,
    https://ringtech.notion.site/icepop). `sequence_truncate`, `sequence_mask`: the same with the
    product of w over the tokens of a reply. `none`: 1.

    Args:
        old: [N] log-probabilities under the learner before the update.
        rollout: [N] as the engine sampled them.
        turn: int64[N], equal for the tokens of one reply.
        config: `correction`, `correction_low` and `correction_high` are used.
    """
    if config.correction == "none":
        return torch.ones_like(old)
    ratio = log_ratio(old, rollout).detach()
    level, action = config.correction.split("_")
    if level == "sequence":
        _, place, count = torch.unique(turn, return_inverse=True, return_counts=True)
        total = turn_means(ratio, turn) * count[place]
        ratio = log_ratio(total, torch.zeros_like(total))
    ratio = ratio.exp()
    if action == "truncate":
        return ratio.clamp(max=config.correction_high)
    kept = (ratio >= config.correction_low) & (ratio <= config.correction_high)
    return torch.where(kept, ratio, 0.0)


def fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """bool[N], True for tokens sampled at most `bound` versions before `version`."""
    return version - versions <= bound
