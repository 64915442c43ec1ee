"""The built-in samplers, one file each; the name of the file is that of the sampler."""
