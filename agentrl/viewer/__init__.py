"""Pages over what was recorded, for the browser."""
