"""The built-in samplers; each file is named after its sampler."""
