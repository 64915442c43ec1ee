"""A virtual phone that speaks the device side of ADB, so that the real adb server connects to it."""

from agentrl.phone.spawn import Phones, spawn

__all__ = ["Phones", "spawn"]
