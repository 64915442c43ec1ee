"""Importance weights of tokens, which correct for a different sampling policy.

An engine's precision and order of operations differ from the learner's, and its weights may be some
updates behind. w = pi_old / pi_rollout, where pi_old is the learner before an update.

Shapes: N sampled tokens of any number of turns.
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
    """Return [N] the factor for each token's loss, without a gradient.

    `token_truncate`: w, at most `high` (TIS, https://fengyao.notion.site/off-policy-rl).
    `token_mask`: w within [`low`, `high`], 0 outside (IcePop, https://ringtech.notion.site/icepop).
    `sequence_truncate`, `sequence_mask`: the same with the product of w over the tokens of a reply.
    `none`: 1.

    Args:
        old: [N] log-probabilities under the learner before the update.
        rollout: [N] log-probabilities reported by the engine when sampling.
        turn: int64[N], equal for the tokens of one reply.
        settings: settings in `algorithm.importance_correction`.
    """
    if settings.kind == "none":
        return old.new_ones(old.shape)
    level, action = settings.kind.split("_")
    # Detach, because the correction is a property of the data, not of the update.
    ratio = (old - rollout).detach()
    if level == "sequence":
        ratio, _ = turn_sums(ratio, turn)
    # Without bounds, the product over a long reply would overflow.
    ratio = bounded(ratio).exp()
    if action == "truncate":
        return ratio.clamp(max=settings.high)
    in_range = (ratio >= settings.low) & (ratio <= settings.high)
    return ratio * in_range
