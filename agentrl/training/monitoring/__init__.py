"""Monitoring of a running job: console, loggers, health checks and the learning curve."""

from agentrl.training.monitoring.reporter import Reporter

__all__ = ["Reporter"]
