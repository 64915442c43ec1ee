"""Encoding of chat messages as token ids, and the conversation of an episode."""
