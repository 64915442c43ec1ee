"""Scripted players: what a player is, and players of every environment."""
