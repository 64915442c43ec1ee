"""Keeps an agent in the apps it may use, and attributes exits to the agent or the environment."""
