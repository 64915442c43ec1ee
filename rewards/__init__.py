"""Reward functions: pure functions of an episode, one file per game or topic."""

from agentrl.package_links import refuse_bare_name

refuse_bare_name(__name__)
