"""Environments that run on another machine, with their own dependencies, over HTTP."""
