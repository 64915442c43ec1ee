"""Which groups and episodes a training step uses, and the penalty for overlong replies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agentrl.config import AlgorithmConfig
from agentrl.types import ScoredEpisode


def has_learning_signal(group: Sequence[ScoredEpisode], settings: AlgorithmConfig) -> bool:
    """Whether a group passes `algorithm.filter_*` (DAPO, arXiv:2503.14476).

    Args:
        group: members of one group; void ones are ignored.
        settings: `filter_groups` requires returns that differ, `filter_means` a mean return within
            its bounds.
    """
    returns = [scored.total for scored in group if not scored.episode.outcome.void]
    if settings.filter_groups and len(set(returns)) < 2:
        return False
    if settings.filter_means and returns:
        low, high = settings.filter_means
        return low <= sum(returns) / len(returns) <= high
    return True


def has_group_filter(settings: AlgorithmConfig) -> bool:
    """Whether any group filter is configured."""
    return settings.filter_groups or bool(settings.filter_means)


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
    group: Sequence[ScoredEpisode], settings: AlgorithmConfig, max_new_tokens: int
) -> list[ScoredEpisode]:
    """A group with the penalty for overlong replies in its rewards; unchanged without a buffer."""
    buffer = settings.overlong_buffer * max_new_tokens
    if buffer <= 0:
        return list(group)
    return [
        replace(
            scored,
            rewards=tuple(
                reward
                + overlong_penalty(
                    len(turn.reply_ids), max_new_tokens, buffer, settings.overlong_penalty
                )
                for reward, turn in zip(scored.rewards, scored.episode.turns, strict=True)
            ),
        )
        for scored in group
    ]


def resample(returns: Sequence[float], power: float, seed: int) -> list[int]:
    """Episodes drawn with replacement in proportion to |R|^power (PF-PPO, arXiv:2409.06957).

    Args:
        returns: [E]
        power: 0 keeps each episode once.
        seed: random seed.

    Returns:
        [E] indices, ascending; each once if all returns are 0.

    """
    weights = np.abs(np.array(returns, dtype=np.float64)) ** power
    if power == 0 or not weights.sum() > 0:
        return list(range(len(returns)))
    odds = weights / weights.sum()
    drawn = np.random.default_rng(seed).choice(len(returns), size=len(returns), p=odds)
    return sorted(map(int, drawn))
