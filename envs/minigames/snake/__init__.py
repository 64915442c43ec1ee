"""Snake: eat, grow, and run into nothing."""
