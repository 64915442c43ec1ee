"""Batching: samples become packed rows and prefix trees."""
