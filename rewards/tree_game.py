"""Rewards of the tree game, one value per turn."""

from agentrl.data.reward_inputs import env_reward, fact
from agentrl.rewards.form import effect
from agentrl.types import Episode

outcome = env_reward
"""By how much each choice was better than the other one, in [-1, 1]; 0 for other turns."""


def regret(episode: Episode) -> list[float]:
    """What a whole game fell short of: 0 for the best power that it allowed, -1 for the worst.

    It stands at the last turn, for comparing whole episodes.

    Raises:
        KeyError: the environment tells of no `regret`.
    """
    if not episode.turns:
        return []
    short = float(fact(episode, episode.turns[-1].info, "regret"))
    return [*(0.0 for _ in episode.turns[1:]), -short]


def format(episode: Episode, cost: float = 0.5) -> list[float]:
    """A small cost for a reply that is no action, and for a tap that does nothing.

    Siblings are compared at one state by what the turn itself earned: a wasted turn must cost.

    Args:
        episode: a finished one.
        cost: of each such turn.

    Raises:
        KeyError: the environment does not tell what has `changed`.
    """
    return effect(episode, cost)
