"""Rewards of the number game, one value per turn."""

from agentrl.data.reward_inputs import env_reward
from agentrl.rewards.form import effect

outcome = env_reward
"""+1 for a right pick, -1 for a wrong or late one, 0 else (the change of score, by 10)."""

format = effect
"""-1 for a reply that is no action and for a tap that does nothing (but take time), else 0.

Siblings are compared at one state by what the turn itself earned, so a wasted turn must not be
worth more than a wrong pick.
"""
