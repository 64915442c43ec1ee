"""The built-in tiny vision-language model."""
