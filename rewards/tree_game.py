"""Rewards of the tree game, one value per turn."""

from agentrl.types import Episode


def outcome(episode: Episode) -> list[float]:
    """By how much each choice was better than the other one, in [-1, 1]; 0 for other turns."""
    return [turn.env_reward for turn in episode.turns]


def regret(episode: Episode) -> list[float]:
    """What a whole game fell short of: 0 for the best power that it allowed, -1 for the worst.

    It stands at the last turn, for comparing whole episodes.
    """
    if not episode.turns:
        return []
    short = float(episode.turns[-1].info.get("regret", 1.0))
    return [*(0.0 for _ in episode.turns[1:]), -short]


def format(episode: Episode, cost: float = 0.5) -> list[float]:
    """A small cost for a reply that is no action, and for a tap that does nothing.

    Siblings are compared at one state by what the turn itself earned: a wasted turn must cost.

    Args:
        episode: a finished one.
        cost: of each such turn.
    """
    return [
        -cost if turn.parse_error is not None or not turn.info.get("changed", True) else 0.0
        for turn in episode.turns
    ]
