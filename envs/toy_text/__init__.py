"""Scripted players of Gymnasium's toy text games, and FrozenLake with a new map in each episode."""
