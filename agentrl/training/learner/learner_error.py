"""What goes wrong while training."""

from agentrl.errors import AgentRLError


class LearnerError(AgentRLError):
    """A rank of the learner died or fell silent, or training diverged; the run cannot go on."""
