"""Weights of tokens in the loss, for aggregation and to correct for a different sampling policy.

An engine's precision and order of operations differ from the learner's, and its weights may be some
updates behind. w = pi_old / pi_rollout, where pi_old is the learner before an update.

Shapes: N sampled tokens of any number of turns.
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
    """Compute the weight of each sample's tokens in the loss over all samples of a step.

    The sum of weighted token losses does not depend on how the samples are split over minibatches,
    micro-batches and ranks. Because a sequence is a whole episode, it does not depend on how
    episodes are split into samples either.

    Args:
        num_tokens: [S] number of sampled tokens of each sample.
        episodes: [S] equal for the samples of one episode.
        aggregate: with n sampled tokens in total, m episodes that have any, and n_e tokens in
            episode e: `token_mean` 1 / n (DAPO, arXiv:2503.14476); `sequence_mean` 1 / (m n_e), the
            mean over episodes of the mean over their tokens (GRPO, arXiv:2402.03300);
            `sequence_sum` 1 / m, the mean of their sums; `constant` 1 / (m * constant) (Dr.GRPO,
            arXiv:2503.20783); `token_sum` 1.
        constant: number of tokens, for `constant`.

    Returns:
        [S]; 0 for a sample without sampled tokens.
    """
    tokens_of_episode: dict[int, int] = {}
    for episode, count in zip(episodes, num_tokens, strict=True):
        tokens_of_episode[episode] = tokens_of_episode.get(episode, 0) + count
    # Episodes without sampled tokens do not count in a mean over episodes.
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


def is_fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """Return bool[N], True for tokens sampled at most `bound` versions behind `version`."""
    return version - versions <= bound
