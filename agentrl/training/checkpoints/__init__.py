"""Sharded state on disk."""
