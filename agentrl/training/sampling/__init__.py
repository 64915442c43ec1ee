"""Chooses the tasks of each training step, and old episodes to add to its groups."""
