"""Faults injected into a virtual phone."""
