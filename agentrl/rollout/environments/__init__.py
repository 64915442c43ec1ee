"""Create environments, run them locally or remotely, and serve them to other machines."""
