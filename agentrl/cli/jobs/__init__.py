"""Commands that start and resume jobs."""
