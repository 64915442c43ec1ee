"""The checks of each kind of extension, one module per kind."""
