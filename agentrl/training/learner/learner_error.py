"""Errors of training."""

from agentrl.errors import AgentRLError


class LearnerError(AgentRLError):
    """A learner rank died or did not answer, or training diverged; the run cannot continue."""
