"""What is served to other programs: reward functions over HTTP."""
