"""Commands over recorded runs."""
