"""Data sets, their images and tables, prompt templates, observations, and inputs of rewards."""
