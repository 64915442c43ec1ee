"""Built-in chat formats, one class per module."""
