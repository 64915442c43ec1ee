"""The built-in tiny vision-language model and its tokenizer."""
