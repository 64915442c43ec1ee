"""Chat messages as token ids, and the conversation of one episode."""
