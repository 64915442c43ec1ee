"""Drivers: the libraries that speak ADB, each wrapped as a `AdbSocket`.

They differ in how they connect to the adb server and how they check that a request was accepted.
Quoting, deadlines, reading and typed errors are shared code.
"""

import importlib
from functools import cache

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

DRIVERS = {
    "adbutils": "agentrl.devices.adb.drivers.adbutils_link:AdbutilsSocket",
    "ppadb": "agentrl.devices.adb.drivers.ppadb_link:PpadbSocket",
}


@cache
def socket_class(driver: str) -> type[AdbSocket]:
    """The `AdbSocket` class of a driver.

    Raises:
        ConfigError: an unknown driver, or its library is not installed.
    """
    if driver not in DRIVERS:
        known = ", ".join(DRIVERS)
        raise ConfigError(
            f"devices.driver={driver} is not one of {known}{did_you_mean(driver, DRIVERS)}"
        )
    module, _, name = DRIVERS[driver].partition(":")
    try:
        found: type[AdbSocket] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"devices.driver={driver}: its library is not installed ({error}); "
            f"pip install 'agentrl-screens[{driver}]', or use devices.driver=adbutils"
        ) from error
    return found
