"""Scripted players of MiniGrid's environments."""

# Recorded runs name the player by this path.
from agentrl.envs.minigrid.players import Walker as Walker
