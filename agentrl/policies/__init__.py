"""What answers a prompt: chat encoding, model adapters, engines, scripted players, the tiny model."""
