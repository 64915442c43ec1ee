"""Single-turn question answering on a user's data set or on generated questions."""
