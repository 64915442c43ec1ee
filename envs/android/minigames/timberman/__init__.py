"""Timberman: chop a tree and avoid its branches."""
