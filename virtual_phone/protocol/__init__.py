"""The device side of the ADB protocol."""
