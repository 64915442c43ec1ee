"""What prompts and tasks are made from."""
