"""What the checks work with: sample episodes and steps, a phone, invariants, and comparisons."""
