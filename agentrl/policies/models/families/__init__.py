"""Built-in model families: one adapter in each module, chosen by the model's `model_type`."""
