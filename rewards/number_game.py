"""Rewards of the number game, one value per turn."""

from agentrl.data.reward_inputs import env_reward
from agentrl.rewards.form import effect

outcome = env_reward
"""+1 for a right pick, -1 for a wrong or late one, else 0 (the change of score divided by 10)."""

format = effect
"""-1 for a reply without an action and for a tap without effect (besides taking time), else 0.

`state_grpo` compares siblings at the same state by the reward of that turn alone, so a wasted turn
must not be worth more than a wrong pick.
"""
