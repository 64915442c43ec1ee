"""Advantages, losses and their parts, as pure functions of tensors."""
