"""Flip: find the pairs among face-down cards."""
