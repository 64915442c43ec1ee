"""Single-turn question answering: over a user's data set, or over generated questions."""
