"""Penalties for long replies."""

from collections.abc import Sequence

from agentrl.types import Episode


def penalty(episode: Episode, free: int = 0, per_token: float = 0.001) -> Sequence[float]:
    """Return minus the cost of each reply's tokens beyond a free allowance.

    Args:
        episode: any episode.
        free: tokens of each reply without a cost.
        per_token: the cost of each further token.
    """
    return [-per_token * max(0, len(turn.reply_ids) - free) for turn in episode.turns]


def overlong(episode: Episode, longest: int, buffer: int, factor: float = 1.0) -> Sequence[float]:
    """Return DAPO's soft overlong punishment of each reply.

    Args:
        episode: any episode.
        longest: maximum tokens of a reply, usually `rollout.max_new_tokens`.
        buffer: the number of tokens before `longest` over which the punishment grows.
        factor: the punishment at `longest`.
    """
    return [
        factor * soft_punishment(len(turn.reply_ids), longest, buffer) for turn in episode.turns
    ]


def soft_punishment(length: int, longest: int, buffer: int) -> float:
    """Return 0 up to `longest - buffer` tokens, then decrease linearly to -1.

    Equation 13 of DAPO (arXiv:2503.14476).

    Raises:
        ValueError: the buffer is not in [1, longest].
    """
    if not 1 <= buffer <= longest:
        raise ValueError(f"buffer={buffer}: must lie in [1, longest={longest}]")
    return -min(1.0, max(0.0, (length - (longest - buffer)) / buffer))
