"""Fixtures of the checks: sample episodes and steps, a phone, invariants, and comparisons."""
