"""Virtual phones: they speak the device side of ADB, so the real adb server connects to them."""

from virtual_phone.spawn import VirtualPhones, spawn

__all__ = ["VirtualPhones", "spawn"]
