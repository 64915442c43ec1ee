"""The system of a virtual phone: screen, files, settings, power, network."""
