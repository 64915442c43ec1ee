"""Load reward functions, and call them in processes of their own."""
