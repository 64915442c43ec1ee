"""Evaluation: episodes on held-out seeds, evaluation suites, and interactive play."""
