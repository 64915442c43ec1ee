"""The number game: pick the card that the lit lamp asks for, on a phone's screen."""
