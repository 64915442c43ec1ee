"""Checkpoints of a run: sharded state, and export to the Hugging Face format."""
