"""Snake: eat, grow, and do not collide."""
