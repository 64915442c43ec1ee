"""Rewards of the tree game, one value per turn."""

from agentrl.data.reward_inputs import env_reward, fact
from agentrl.rewards.form import effect
from agentrl.types import Episode

outcome = env_reward
"""The gain of each decision over the alternative, in [-1, 1]; 0 for other turns."""


def regret(episode: Episode) -> list[float]:
    """Return minus the regret of the whole game: 0 for the best possible power, -1 for the worst.

    The reward is assigned to the last turn, for comparing whole episodes.

    Raises:
        KeyError: `info` has no `regret`.
    """
    if not episode.turns:
        return []
    short = float(fact(episode, episode.turns[-1].info, "regret"))
    return [*(0.0 for _ in episode.turns[1:]), -short]


def format(episode: Episode, cost: float = 0.5) -> list[float]:
    """Return minus a small cost for a reply without an action and for a tap without effect.

    `state_grpo` compares siblings at the same state by the reward of that turn alone, so a wasted
    turn must cost something.

    Args:
        episode: a finished episode.
        cost: the cost of each such turn.

    Raises:
        KeyError: `info` has no `changed`.
    """
    return effect(episode, cost)
