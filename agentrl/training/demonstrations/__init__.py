"""Recorded episodes as training data, and the cache of warm starts trained on them."""
