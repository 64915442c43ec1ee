"""Training on fixed data sets: supervised fine-tuning, preferences, reward models."""
