"""Rewards of the number game, one value per turn."""

from agentrl.types import Episode


def outcome(episode: Episode) -> list[float]:
    """+1 for a right pick, -1 for a wrong or late one, 0 else (the change of score, by 10)."""
    return [turn.env_reward for turn in episode.turns]


def format(episode: Episode) -> list[float]:
    """-1 for a reply that is no action and for a tap that does nothing (but take time), else 0.

    Siblings are compared at one state by what the turn itself earned, so a wasted turn must not
    be worth more than a wrong pick.
    """
    return [
        -1.0 if turn.parse_error is not None or not turn.info.get("changed", True) else 0.0
        for turn in episode.turns
    ]
