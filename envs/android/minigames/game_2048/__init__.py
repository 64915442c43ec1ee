"""2048: slide tiles, merge equal ones."""
