"""Load reward functions, and call them in separate processes."""
