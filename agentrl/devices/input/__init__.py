"""Touches, keys and text sent to a phone, and waiting for the screen to settle."""
