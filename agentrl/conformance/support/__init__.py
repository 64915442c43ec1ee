"""What the checks work with: sample episodes and steps, a phone, laws, and comparisons."""
