"""Storage of screens: deduplicated, compressed, packed."""
