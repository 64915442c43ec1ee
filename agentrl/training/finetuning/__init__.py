"""Training on fixed data sets: supervised fine-tuning."""
