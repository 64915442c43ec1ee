"""Environments that run elsewhere, with whatever they need there; told over HTTP."""
