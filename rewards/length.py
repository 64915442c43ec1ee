"""What long replies cost."""

from collections.abc import Sequence

from agentrl.types import Episode


def penalty(episode: Episode, free: int = 0, per_token: float = 0.001) -> Sequence[float]:
    """A little less for each token of a reply beyond those that are free.

    Args:
        episode: any.
        free: tokens of each reply that cost nothing.
        per_token: what each further one costs.
    """
    return [-per_token * max(0, len(turn.reply_ids) - free) for turn in episode.turns]


def overlong(episode: Episode, longest: int, buffer: int, factor: float = 1.0) -> Sequence[float]:
    """DAPO's soft punishment of each reply.

    Args:
        episode: any.
        longest: tokens of a reply, at most: usually `rollout.max_new_tokens`.
        buffer: the tokens before that over which the punishment grows.
        factor: the punishment at the end of them.
    """
    return [
        factor * soft_punishment(len(turn.reply_ids), longest, buffer) for turn in episode.turns
    ]


def soft_punishment(length: int, longest: int, buffer: int) -> float:
    """0 up to `longest - buffer` tokens, then evenly down to -1 (arXiv:2503.14476, equation 13).

    Raises:
        ValueError: the buffer is not in [1, longest].
    """
    if not 1 <= buffer <= longest:
        raise ValueError(f"buffer={buffer}: must lie in [1, longest={longest}]")
    return -min(1.0, max(0.0, (length - (longest - buffer)) / buffer))
