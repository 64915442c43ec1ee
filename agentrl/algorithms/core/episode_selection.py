"""Which groups a training step uses, and the penalty for overlong replies."""

from collections.abc import Sequence
from dataclasses import replace

from agentrl.algorithms.core.statistics import nearly_equal
from agentrl.config import OverlongConfig, SamplingConfig
from agentrl.types import ScoredEpisode


def has_learning_signal(group: Sequence[ScoredEpisode], settings: SamplingConfig) -> bool:
    """Whether a group passes the filters of `algorithm.sampling` (DAPO, arXiv:2503.14476).

    Args:
        group: members of one group; void ones are ignored.
        settings: `filter_groups` requires rewards that differ, `filter_means` a mean reward within
            its bounds.
    """
    returns = [scored.reward for scored in group if not scored.episode.outcome.void]
    if settings.filter_groups and (not returns or nearly_equal(min(returns), max(returns))):
        return False
    if settings.filter_means is not None and returns:
        low, high = settings.filter_means
        return low <= sum(returns) / len(returns) <= high
    return True


def overlong_penalty(length: int, longest: int, buffer: float, penalty: float) -> float:
    """min(0, -(length - (longest - buffer)) / buffer * penalty), not below -penalty.

    Source: DAPO, arXiv:2503.14476, equation 13.

    Args:
        length: reply length in tokens.
        longest: maximum reply length in tokens.
        buffer: the last tokens before the limit, over which the penalty grows; 0 for no penalty.
        penalty: penalty of a reply at the limit.
    """
    if buffer <= 0:
        return 0.0
    return max(-penalty, min(0.0, -(length - (longest - buffer)) / buffer * penalty))


def penalize_overlong(
    group: Sequence[ScoredEpisode], settings: OverlongConfig, max_new_tokens: int
) -> list[ScoredEpisode]:
    """A group with the penalty for overlong replies in its rewards; unchanged without a buffer."""
    buffer = settings.buffer * max_new_tokens
    if buffer <= 0:
        return list(group)
    return [
        replace(
            scored,
            rewards=tuple(
                reward
                + overlong_penalty(len(turn.reply_ids), max_new_tokens, buffer, settings.penalty)
                for reward, turn in zip(scored.rewards, scored.episode.turns, strict=True)
            ),
        )
        for scored in group
    ]
