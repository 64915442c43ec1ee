"""Scripted players of MiniGrid's environments."""

from agentrl.envs.minigrid.players import Walker as Walker
