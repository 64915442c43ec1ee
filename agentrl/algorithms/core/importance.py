"""Weights that correct for tokens that a slightly different policy sampled.

An engine computes in another precision and order than the learner, and may be some updates behind.
w = pi_old / pi_rollout, where pi_old is the learner before an update.

Shapes: N sampled tokens, of any number of turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.kl import bounded
from agentrl.algorithms.core.statistics import turn_sums
from agentrl.config import ImportanceConfig

if TYPE_CHECKING:
    from torch import Tensor


def importance_weights(
    old: Tensor, rollout: Tensor, turn: Tensor, settings: ImportanceConfig
) -> Tensor:
    """[N] the factor of each token's loss; without gradient.

    `token_truncate`: w, at most `high` (TIS, https://fengyao.notion.site/off-policy-rl).
    `token_mask`: w within [`low`, `high`], 0 outside (IcePop, https://ringtech.notion.site/icepop).
    `sequence_truncate`, `sequence_mask`: the same with the product of w over the tokens of a reply.
    `none`: 1.

    Args:
        old: [N] log-probabilities under the learner before the update.
        rollout: [N] log-probabilities that the engine sampled with.
        turn: int64[N], equal for the tokens of one reply.
        settings: of `algorithm.importance_correction`.
    """
    if settings.kind == "none":
        return old.new_ones(old.shape)
    level, action = settings.kind.split("_")
    ratio = (old - rollout).detach()
    if level == "sequence":
        ratio, _ = turn_sums(ratio, turn)
    ratio = bounded(ratio).exp()
    if action == "truncate":
        return ratio.clamp(max=settings.high)
    in_range = (ratio >= settings.low) & (ratio <= settings.high)
    return ratio * in_range


def is_fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """bool[N], True for tokens whose weights were at most `bound` versions behind `version`."""
    return version - versions <= bound
