"""Checks that users can run on their own extensions; `agentrl check` runs them."""
