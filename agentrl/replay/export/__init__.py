"""Recorded episodes as data sets for other tools."""
