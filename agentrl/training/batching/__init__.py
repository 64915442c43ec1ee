"""From samples to packed rows and prefix trees."""
