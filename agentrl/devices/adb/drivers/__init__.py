"""Drivers: ADB client libraries, each wrapped as an `AdbSocket` in a file of its own.

They differ in how they connect to the adb server and how they check that a request was accepted.
Quoting, deadlines, reading and typed errors are shared code. Each library is imported on first use.
"""

from functools import cache

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.extension_points import DRIVER


@cache
def socket_class(driver: str) -> type[AdbSocket]:
    """Import and return a driver's `AdbSocket` class."""
    found: type[AdbSocket] = DRIVER.resolve(driver)
    return found
