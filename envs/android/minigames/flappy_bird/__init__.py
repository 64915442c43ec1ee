"""Flappy Bird: fly through the gates."""
