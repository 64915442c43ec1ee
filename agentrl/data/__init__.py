"""What prompts are made from."""
