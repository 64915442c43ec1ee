"""Built-in model families, one adapter per module, selected by the model's `model_type`."""
