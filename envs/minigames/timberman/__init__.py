"""Timberman: chop a tree and keep clear of its branches."""
