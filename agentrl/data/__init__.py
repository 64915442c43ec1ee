"""Data sets, images, prompt templates, and the translation of observations and actions."""
