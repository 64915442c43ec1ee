"""A real browser on the virtual phone: an app whose pages are those of a headless Chromium."""
