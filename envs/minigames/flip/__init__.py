"""Flip: find the pairs among cards that lie face down."""
