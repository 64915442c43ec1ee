"""Services for other programs: reward functions over HTTP."""
