"""Chat messages, conversations and history layouts."""
