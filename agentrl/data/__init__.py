"""Data sets, their tables and images, prompt templates, observations and reward inputs."""
