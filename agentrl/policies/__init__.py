"""What answers a prompt: chat encoding, model kits, engines, scripted players, the tiny model."""
