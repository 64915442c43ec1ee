"""The weight of each token in the loss: by aggregation, and to correct for another sampling policy.

An engine computes in another precision and order than the learner, and may be some updates behind.
w = pi_old / pi_rollout, where pi_old is the learner before an update.

Shapes: N sampled tokens, of any number of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentrl.algorithms.core.kl import bounded
from agentrl.algorithms.core.statistics import turn_sums
from agentrl.config import ImportanceConfig

if TYPE_CHECKING:
    from torch import Tensor


def token_weights(
    num_tokens: Sequence[int], episodes: Sequence[int], aggregate: str, constant: float = 1.0
) -> list[float]:
    """Weight of each sample's tokens in the loss over all samples of a step.

    The sum of weighted token losses is the same however the samples are split over minibatches,
    micro-batches and ranks, and, as a sequence is a whole episode, however episodes are split into
    samples.

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
    # An episode without sampled tokens has no share in a mean over episodes.
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
    # Without gradient: the correction is a property of the data, not of the update.
    ratio = (old - rollout).detach()
    if level == "sequence":
        ratio, _ = turn_sums(ratio, turn)
    # The product over a long reply would overflow.
    ratio = bounded(ratio).exp()
    if action == "truncate":
        return ratio.clamp(max=settings.high)
    in_range = (ratio >= settings.low) & (ratio <= settings.high)
    return ratio * in_range


def is_fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """bool[N], True for tokens whose weights were at most `bound` versions behind `version`."""
    return version - versions <= bound
