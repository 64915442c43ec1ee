"""Built-in chat formats: one class in each module."""
