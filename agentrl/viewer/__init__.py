"""Web pages over recorded runs."""
