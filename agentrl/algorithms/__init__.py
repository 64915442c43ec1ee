"""Algorithms, one file each, with advantages, policy loss, defaults and requirements."""
