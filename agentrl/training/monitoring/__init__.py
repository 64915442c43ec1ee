"""Monitoring of a running job: console, loggers, watchdogs and the learning curve."""

from agentrl.training.monitoring.reporter import Reporter

__all__ = ["Reporter"]
