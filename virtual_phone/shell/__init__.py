"""The shell of a virtual phone."""
