"""Dialects: one module each, holding one subclass of `agentrl.actions.dialect.Dialect`."""
