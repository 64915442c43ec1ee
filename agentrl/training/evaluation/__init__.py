"""Play on held-out seeds."""
