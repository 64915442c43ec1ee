"""The system of a virtual phone: screen, input, files, settings, network."""
