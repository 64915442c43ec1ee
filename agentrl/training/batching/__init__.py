"""Batching: samples become prefix trees in packed rows."""
