"""Dialects, one per module, each a subclass of `agentrl.actions.dialect.Dialect`."""
