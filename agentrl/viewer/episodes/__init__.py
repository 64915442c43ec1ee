"""What the pages show of recorded episodes."""
