"""Text for people: messages, names of phones, suggestions for unknown names, tags of replies."""
