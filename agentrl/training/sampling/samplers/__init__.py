"""The built-in samplers; each file has its sampler's name."""
