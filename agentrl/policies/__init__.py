"""Policies: chat encoding, model adapters, engines, scripted players, and the tiny model."""
