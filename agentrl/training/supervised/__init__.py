"""Supervised warm start from demonstrations."""
