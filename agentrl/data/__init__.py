"""Data sets with their tables and images, prompt templates, observations, reward inputs."""
