"""A reward function of your own: the environment's reward minus a cost per token.

agentrl check reward reward.py:brief per_token=0.01
agentrl train number_game "rewards=[{function: reward.py:brief, kwargs: {per_token: 0.01}}]"
"""

from agentrl.types import Episode


def brief(episode: Episode, per_token: float = 0.001) -> list[float]:
    """Return, per turn, the environment's reward minus `per_token` for each token."""
    return [turn.env_reward - per_token * len(turn.reply_ids) for turn in episode.turns]
