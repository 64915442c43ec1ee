"""Environments with interfaces other than Gymnasium's, which `env.id` names by a prefix."""
