"""Make environments, run them where they belong, and serve them to others."""
