"""Checks and estimates before a job starts: its plan, lengths, memory and disk space."""
