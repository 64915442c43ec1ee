"""The built-in weight transports, one in each file, under the file's name."""
