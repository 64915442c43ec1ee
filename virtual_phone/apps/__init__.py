"""Apps on a virtual phone."""
