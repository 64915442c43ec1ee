"""What a user sees of a job while it runs: display, logs and the learning curve."""

from agentrl.training.monitoring.reporter import Reporter

__all__ = ["Reporter"]
